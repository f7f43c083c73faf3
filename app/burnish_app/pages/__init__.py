"""The pages of the window, one a file; the window imports each on the first visit."""
