"""Short convolution with SiLU over the tokens of a document."""
