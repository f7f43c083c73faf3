"""Trains a run on another machine: hands it over, follows it into the run folder here, and brings its result back."""
