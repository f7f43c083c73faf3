"""What was worked on last, as it is kept on disk, and the files that it is about."""
