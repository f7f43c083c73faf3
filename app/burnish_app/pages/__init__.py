"""The pages of the window, one per file; the window imports each on the first visit."""
