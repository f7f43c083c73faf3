"""The studio: the desktop window over the engine. Of the engine it imports only `burnish_engine.contract`."""
