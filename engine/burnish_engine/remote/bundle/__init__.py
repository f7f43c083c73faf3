"""What is sent to another machine: the files that a job needs, and Burnish itself as a wheel."""
