"""Widgets about rewards: their lines, a trial of them, and replies that they judged."""
