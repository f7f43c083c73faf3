"""The device and precision of a run, and checks of a machine's kernels and links."""
