"""GGUF files: metadata, tokenizer and tensors."""
