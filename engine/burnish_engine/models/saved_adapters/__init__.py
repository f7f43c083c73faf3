"""Adapters in PEFT's format on disk: checked, and continued from."""
