"""Diagnostics of a fit: identifiability, intervals, likelihood profiles, held-out error and their summary."""
