"""The same projection on weights in NF4, which are decoded inside the product."""
