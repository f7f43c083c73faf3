"""Routing of tokens to experts: the chosen experts, their weights, and the gradient to the router's logits."""
