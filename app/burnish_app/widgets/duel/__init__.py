"""Parts of the page Duel: its sides, its plan, its progress, and its verdicts with intervals."""
