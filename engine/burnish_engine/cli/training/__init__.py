"""Commands for runs: predicted, trained, followed, compared."""
