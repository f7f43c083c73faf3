"""`burnish serve`: live questions of the desktop app."""
