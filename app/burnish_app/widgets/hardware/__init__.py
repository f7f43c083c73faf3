"""Cards of the page Hardware."""
