"""Widgets of the page Try it: one side of a conversation, and the message box."""
