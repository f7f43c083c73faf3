"""Gated delta rule within packed documents, in chunks and token by token."""
