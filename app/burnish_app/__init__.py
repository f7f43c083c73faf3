"""The studio: windows over the engine. Of our own code it imports `burnish_engine.contract` and nothing else."""
