"""The files of a release: where they come from, and fetching them so that a cut costs nothing."""
