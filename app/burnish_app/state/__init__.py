"""The studio's state: preferences, the workbench, run folders."""
