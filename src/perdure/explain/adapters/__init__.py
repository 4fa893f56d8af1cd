"""Inputs, outputs and models in the forms that users have."""
