"""Experts' weights in four bits: NF4 and MXFP4 stacks, decoded in a product or unpacked in groups."""
