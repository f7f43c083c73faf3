"""Facts about this machine: GPUs, links, processor, memory, disk. Never needs torch."""
