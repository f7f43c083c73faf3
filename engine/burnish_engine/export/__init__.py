"""Export: turns a trained adapter or model into verified files."""
