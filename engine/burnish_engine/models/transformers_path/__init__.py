"""Models of transformers with adapters of PEFT: the reference that the fast decoder is compared with."""
