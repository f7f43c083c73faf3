"""The work around the steps of a run: inputs, commands, checkpoints, validation, measurements, the run card."""
