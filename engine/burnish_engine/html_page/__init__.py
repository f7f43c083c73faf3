"""Writes reports as HTML pages: one look for all of them, which is the window's, and plots. No torch."""
