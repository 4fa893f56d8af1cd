"""Conversion of inputs and outputs, and copies of networks."""
