"""The `burnish` command: its entry, what all its commands share, and one file for each command in the folders below."""
