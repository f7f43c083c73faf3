"""The parts of a family's record: how config.json is read, and how a GGUF is written."""
