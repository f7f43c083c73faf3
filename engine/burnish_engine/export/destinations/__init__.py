"""Layouts and uploads for other programs: Ollama, LM Studio, a model hub."""
