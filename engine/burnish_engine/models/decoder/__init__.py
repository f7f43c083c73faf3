"""Burnish's own decoder, with forward and backward passes written out."""
