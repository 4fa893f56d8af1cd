"""The experiments of the attribution-bias paper, one module each."""
