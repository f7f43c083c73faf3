"""The engine's own environment: what it fetches, its versions side by side, updates, and bundles for other PCs."""
