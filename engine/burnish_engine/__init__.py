"""Burnish's engine. Importing this loads nothing."""
