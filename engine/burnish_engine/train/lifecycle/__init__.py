"""The work around the steps of a run: inputs, commands, checkpoints, measurements, the run card."""
