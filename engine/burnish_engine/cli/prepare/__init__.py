"""Commands before a run: models, data, recipes."""
