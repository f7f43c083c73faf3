"""The whole job on the embedded default: train, talk, export, verify, report."""
