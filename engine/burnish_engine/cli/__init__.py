"""The burnish command. One file a command group."""
