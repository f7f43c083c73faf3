"""The content of charts as numbers and text: curves, smoothing, axes, ticks, marks, tables. No Qt."""
