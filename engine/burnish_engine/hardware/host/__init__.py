"""Facts about the machine beside its GPUs: processor, memory, disk, sleep."""
