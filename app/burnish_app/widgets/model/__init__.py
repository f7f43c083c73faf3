"""Widgets of the page Model: the catalog and the target device."""
