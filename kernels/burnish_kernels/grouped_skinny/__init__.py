"""The narrow products of the experts' adapters: rows to ranks, and the adapters' gradients."""
