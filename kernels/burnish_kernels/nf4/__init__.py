"""Four-bit NormalFloat weights: quantization, and both levels of dequantization in one pass."""
