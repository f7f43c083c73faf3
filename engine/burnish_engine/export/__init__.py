"""From a trained adapter to verified files."""
