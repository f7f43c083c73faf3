"""Ways to another machine, one file each: ssh, SLURM, SkyPilot, Hugging Face Jobs."""
