"""Widgets of the page Recipe: the form and the prediction of memory and time."""
