"""Radar: which model types of the installed transformers work from plan to proven file, tried on small models."""
