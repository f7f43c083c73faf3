"""Models: checkpoints and their specification, Burnish's decoder, the plain transformers path, and generation."""
