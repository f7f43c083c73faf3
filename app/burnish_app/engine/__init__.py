"""The connection to the engine: requests, and following runs and exports as they write their files."""
