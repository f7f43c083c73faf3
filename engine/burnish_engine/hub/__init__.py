"""Models from a hub by name: look up, download, check. Loads no torch; the only part that asks the network."""
