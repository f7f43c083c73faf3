"""Gated activation: act(gate) times up, on the stacked output of the gate and up projections."""
