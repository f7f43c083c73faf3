"""Sums over the ranks of a run: who computes which passes, and how their gradients are added up."""
