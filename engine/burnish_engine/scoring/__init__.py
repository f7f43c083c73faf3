"""The score of a task: which rows are scored, which replies are right, and what a dataset suggests."""
