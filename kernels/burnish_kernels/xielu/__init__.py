"""xIELU: the activation of a feed-forward without a gate, with constants of each layer."""
