"""Recovery: a run continues with a smaller plan when memory runs out, and from its checkpoints after bad steps."""
