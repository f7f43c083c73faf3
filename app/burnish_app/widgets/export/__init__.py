"""Cards of the page Export: choices, progress, fidelity report and files."""
