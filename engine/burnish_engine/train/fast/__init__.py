"""The fast engine: it trains adapters with Burnish's own decoder and kernels."""
