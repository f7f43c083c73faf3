"""Sum of the experts' outputs for each token, in a fixed order."""
