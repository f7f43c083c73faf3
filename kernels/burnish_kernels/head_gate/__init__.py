"""Gate of attention's output: each head, or each number, times the sigmoid of a projected logit."""
