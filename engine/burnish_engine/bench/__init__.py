"""Benchmarks: the speed of training steps and GGUF files on this machine, beside the limits of the hardware."""
