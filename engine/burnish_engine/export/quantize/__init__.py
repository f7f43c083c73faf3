"""Quantized GGUF files: importance matrix, GPTQ, and llama.cpp's quantizer."""
