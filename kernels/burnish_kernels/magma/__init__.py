"""Magma and SkipUpdate: scale each matrix's step, by chance and by how momentum and gradient agree."""
