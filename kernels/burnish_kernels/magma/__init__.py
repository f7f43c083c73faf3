"""Magma and SkipUpdate: how far each matrix goes in a step, by chance and by how momentum and gradient agree."""
