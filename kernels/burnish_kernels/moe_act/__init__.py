"""The experts' gated activation on sorted rows, and its gradient with that of the routing weights."""
