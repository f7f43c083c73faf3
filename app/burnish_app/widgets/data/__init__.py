"""Cards of the page Data."""
