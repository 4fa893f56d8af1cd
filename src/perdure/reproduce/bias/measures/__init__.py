"""Measurements of explainers on a network that only the experiments of the attribution-bias paper use."""
