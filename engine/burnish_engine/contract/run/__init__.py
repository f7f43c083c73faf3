"""Files and messages of a run: events, the state they add up to, commands, state file, card, ending."""
