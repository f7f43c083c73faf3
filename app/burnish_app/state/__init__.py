"""The studio's state: preferences, the workbench, run folders, and runs folded from their events."""
