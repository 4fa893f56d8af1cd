"""Importers: files of other frameworks become measurements, curves or records."""

from perdure.importers.matrices import read_accuracies, read_cost

__all__ = ["read_accuracies", "read_cost"]
