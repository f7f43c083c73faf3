"""`burnish serve`: answers the desktop app's requests."""
