"""Report of a duel: one HTML page with plots."""
