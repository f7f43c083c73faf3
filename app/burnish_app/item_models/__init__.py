"""Qt item models behind the tables."""
