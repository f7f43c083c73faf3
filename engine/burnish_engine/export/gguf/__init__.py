"""GGUF: metadata, tokenizer and tensors."""
