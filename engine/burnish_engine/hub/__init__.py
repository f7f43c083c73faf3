"""Looks up, downloads and checks models of a hub by name. Loads no torch; no other part downloads models."""
