"""Importers: files of other frameworks become measurements, curves or records."""

from perdure.importers.matrices import read_accuracy_matrices, read_matrix_costs

__all__ = ["read_accuracy_matrices", "read_matrix_costs"]
