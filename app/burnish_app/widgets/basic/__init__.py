"""Widgets that every page uses: text, buttons, cards, layouts, tables and plots."""
