"""A model folder on disk: its configuration, tokenizer and weights, checked before they are used."""
