"""The advisor: predicts memory, speed and file sizes before a run starts, and suggests recipes. Never needs torch."""
