"""The expert half of a decoder layer: routing, the experts' maps with their adapters, and how these are read."""
