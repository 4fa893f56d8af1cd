"""Measurements on networks that only the experiments of the attribution-bias paper use."""
