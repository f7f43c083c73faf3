"""Parts of the page Sweep: settings with values, the plan, and the table of its runs."""
