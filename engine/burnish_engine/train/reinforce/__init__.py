"""Reinforcement: replies that the model writes, their rewards, and the micro-batches that they are learned in."""
