"""Turns dataset files into token documents with supervision flags, and packs those into micro-batches."""
