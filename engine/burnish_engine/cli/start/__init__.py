"""Commands that start something whole: the window, the demo, the server of other programs."""
