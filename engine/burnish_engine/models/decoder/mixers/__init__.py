"""The mixers of a decoder layer, one folder each. `declared`, `build` and `caches` say which layer has which."""
