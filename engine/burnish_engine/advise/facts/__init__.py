"""Inputs of every prediction: the model's shape, the workload, past runs. Loads no torch."""
