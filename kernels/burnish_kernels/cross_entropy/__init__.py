"""Cross entropy of a language model's head, chunk by chunk: the logits of all rows never exist at once."""
