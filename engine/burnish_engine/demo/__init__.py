"""Demo: does the whole job with the embedded model: train, chat, export, verify, report."""
