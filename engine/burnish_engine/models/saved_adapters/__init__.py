"""Adapters in PEFT's format on disk: checked, and gone on from."""
