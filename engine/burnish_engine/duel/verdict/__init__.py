"""Statistics and verdicts on the runs of a duel."""
