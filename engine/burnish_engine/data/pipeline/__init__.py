"""Runs rows through parsing, rendering and tokenizing in several processes, and selects the documents to use."""
