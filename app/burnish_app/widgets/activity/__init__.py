"""What goes on, always in view: the button at the foot of the sidebar, and the list that it opens."""
