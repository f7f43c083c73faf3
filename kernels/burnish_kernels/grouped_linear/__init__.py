"""The experts' linear maps: each row times its expert's weight and adapter, in one launch."""
