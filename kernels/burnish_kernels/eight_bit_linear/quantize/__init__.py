"""Kernels that quantize rows and transpose codes, with the helpers of every kernel that writes codes."""
