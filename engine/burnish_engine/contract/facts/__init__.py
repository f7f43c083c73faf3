"""Facts and advice that the engine and the app exchange. Plain data."""
