"""JSON lines between processes: server, child processes, jobs and streams."""
