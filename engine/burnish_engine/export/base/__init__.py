"""Parts that all exports share: the staging folder, and losses that compare models."""
