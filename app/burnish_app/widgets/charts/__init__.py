"""Charts to work with: linked cursor, zoom, pinned values, legend, tables and pictures."""
