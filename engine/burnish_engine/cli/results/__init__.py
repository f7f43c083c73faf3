"""Commands for what a run has made: replies, scores, files."""
