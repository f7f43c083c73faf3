"""A projection with weights in FP8 or INT8 and its adapters on few tokens."""
