"""The contract that all parts of Burnish share: recipe, events, commands, facts, errors, paths. Never imports torch."""
