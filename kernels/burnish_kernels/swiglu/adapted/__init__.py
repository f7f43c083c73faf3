"""The gated activation together with the adapters' products that read or make its wide tensors."""
