"""Estimators of the surrogate model's parameters."""
