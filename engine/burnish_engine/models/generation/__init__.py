"""Text generation with torch models: sampling, key-value cache, streaming."""
