"""The `burnish` command, with one file per command group."""
