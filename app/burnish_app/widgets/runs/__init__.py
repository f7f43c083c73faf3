"""Widgets of the page Train: figures, charts, guard verdict and log of a run."""
