"""The two explainers that say nothing and are always run beside the others."""

CONTROLS = ("constant", "random")
"""A map of ones, and Gaussian noise drawn anew for each model and sample: what a score is worth is what it makes of these."""
