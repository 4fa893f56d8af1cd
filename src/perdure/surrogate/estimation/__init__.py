"""Fitting the surrogate model to performance curves."""
