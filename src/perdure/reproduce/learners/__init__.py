"""Comparisons of learners from published tables: classic and memory-based methods."""
