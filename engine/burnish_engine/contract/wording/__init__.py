"""Sentences that terminal and window both show: tables of English forms, and what puts facts into them."""
