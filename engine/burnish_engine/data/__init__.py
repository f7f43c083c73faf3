"""From files to packed, masked token batches."""
