"""Text for figures, facts and findings. Pure functions, no Qt."""
