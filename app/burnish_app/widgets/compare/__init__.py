"""Parts of the page Compare: curves over each other, what differs, and replies side by side."""
