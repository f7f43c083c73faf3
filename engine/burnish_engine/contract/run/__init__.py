"""Files and messages of a run: events, commands, state, card, ending."""
