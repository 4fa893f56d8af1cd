"""Importers: files of other frameworks become measurements, curves or records."""

from perdure.importers.imported_run import IMPORTERS, ImportedRun, ReadOptions, importer
from perdure.importers.matrices import read_accuracy_matrices, read_matrix_costs
from perdure.importers.reading import Imported, read
from perdure.importers.source import Source

__all__ = [
    "IMPORTERS",
    "Imported",
    "ImportedRun",
    "ReadOptions",
    "Source",
    "importer",
    "read",
    "read_accuracy_matrices",
    "read_matrix_costs",
]
