"""Qt item models behind tables and lists."""
