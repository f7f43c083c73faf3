"""Training: the session of one run, the choice of its engine, and the rooms that both build on."""
