"""GGUF files through llama.cpp."""
