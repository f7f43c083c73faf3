"""Widgets of the activities: the button at the foot of the sidebar, and the list that it opens."""
