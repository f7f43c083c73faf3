"""Memory: counted, taken away, and running out."""
