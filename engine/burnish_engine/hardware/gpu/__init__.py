"""GPUs: facts from NVML, peak rates, and the links between them."""
