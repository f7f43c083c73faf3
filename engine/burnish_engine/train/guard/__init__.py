"""The guard checks before, during and after a run that it really trains, and states what is wrong in one verdict."""
