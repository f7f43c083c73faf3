"""The narrow product of rows with an adapter, which quantizes them while it has them in registers."""
