"""JSON lines between processes: server, child processes, jobs and streams; and processes that end with their parent."""
