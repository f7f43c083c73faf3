"""Computes what each page shows, as one value: a pure function `page_state` of what is known. Without Qt."""
