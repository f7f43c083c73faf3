"""What every part of Burnish agrees on: recipe, events, commands, facts, errors, paths. Never imports torch."""
