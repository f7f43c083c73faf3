"""AdamW on one flat buffer: clipping, loss scaling, skipped steps and the compute dtype's copies, without the host."""
