"""Widgets that every page uses: text, buttons, cards, banners, layouts, tables and plots."""
