"""The machine that is set up: facts, the builds that run on it, and checks. Needs nothing but Python's library."""
