"""Tokenizes rendered rows, keeps the documents in shards, and splits, mixes and packs them into micro-batches."""
