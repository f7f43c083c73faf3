"""GGUF files: read, with the tensors and settings of the model that they were made from."""
