"""Measurements of a duel's run: outcome, energy, instability, and equality of conditions."""
