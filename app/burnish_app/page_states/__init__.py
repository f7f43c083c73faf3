"""Computes the state of each page as one value, by a pure function `page_state` of known facts. Without Qt."""
