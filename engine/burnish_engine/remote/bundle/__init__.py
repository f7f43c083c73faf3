"""Packs the files that a job on another machine needs, and Burnish itself as a wheel."""
