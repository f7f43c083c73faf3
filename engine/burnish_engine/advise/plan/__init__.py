"""Run plans: whether a run fits, with which memory plan, and how long it takes. Loads no torch."""
