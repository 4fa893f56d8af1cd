"""Other frameworks' outputs become records or measurements."""

from perdure.importers.matrices import read_accuracies, read_cost

__all__ = ["read_accuracies", "read_cost"]
