"""Readers of other frameworks' files: one file for each framework."""
