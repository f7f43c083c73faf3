"""Describes a prepared dataset for people: figures, findings and warnings."""
