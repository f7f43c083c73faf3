"""Recovery from running out of memory: a run continues with a smaller memory plan."""
