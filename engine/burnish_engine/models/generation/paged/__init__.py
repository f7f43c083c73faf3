"""Replies that grow together on a GPU: pages of keys and values, captured steps, and the schedule of both."""
