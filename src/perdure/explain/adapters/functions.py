"""Models outside PyTorch: anything with ``predict_proba`` or ``decision_function``, or a function from arrays to scores."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure.base.errors import InputError, error_message

SCORES = ("predict_proba", "decision_function", "predict")
"""Methods of an estimator from which scores are taken, best first. ``predict`` is used for regression only."""


class FunctionModel(nn.Module):
    """A model outside PyTorch as a module without parameters. Its outputs have no gradient.

    ``model``: an estimator as in scikit-learn, or a function from an array (n, ...) to scores (n,) or (n, outputs). The
    outputs of an estimator are ordered by class: if ``classes_`` are integers from 0, output k belongs to class k, and a
    class that the estimator has not seen has the lowest score.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.source = model
        self.method = next((name for name in SCORES if callable(getattr(model, name, None))), None)
        if self.method is None and not callable(model):
            raise InputError(
                f"model: expected a torch.nn.Module, an object with predict_proba or decision_function, or a function from "
                f"arrays to scores, got a {type(model).__name__}"
            )
        if self.method == "predict" and hasattr(model, "classes_"):
            raise InputError(
                f"model: {type(model).__name__} has neither predict_proba nor decision_function, so its classes have no scores"
            )
        self.eval()

    def __deepcopy__(self, memo: dict[int, Any]) -> FunctionModel:
        return self  # it holds nothing that an explainer changes

    @property
    def label(self) -> str:
        """The name of the estimator's class or of the function."""
        return getattr(self.source, "__name__", None) or type(self.source).__name__

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of a batch, (n, outputs)."""
        array: NDArray[Any] = x.detach().cpu().numpy()
        call: Callable[[Any], Any] = self.source if self.method is None else getattr(self.source, self.method)
        try:
            with warnings.catch_warnings():
                # Estimators that were fitted to a DataFrame warn about arrays, at every call.
                warnings.filterwarnings("ignore", message="X does not have valid feature names")
                scores = _as_scores(call(array.astype(np.float64)))
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"model: {self.label} failed on inputs of shape {array.shape} ({type(error).__name__}: {error_message(error)})"
            ) from error
        if self.method == "decision_function" and scores.ndim == 1:
            scores = np.stack([-scores, scores], axis=1)  # two classes, one score
        rows = scores[:, None] if scores.ndim == 1 else scores
        return torch.from_numpy(self._by_class(rows)).to(x)

    def _by_class(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return one column per class from 0 to the largest; the columns of unseen classes hold the lowest score."""
        classes = np.asarray(getattr(self.source, "classes_", ()))
        if not classes.size:
            return scores
        if classes.ndim != 1 or classes.dtype.kind not in "iu" or len(classes) != scores.shape[-1] or classes.min() < 0:
            return scores
        if np.array_equal(classes, np.arange(len(classes))):
            return scores
        lowest = 0.0 if self.method == "predict_proba" else scores.min(axis=1, keepdims=True)
        columns = np.zeros((len(scores), int(classes.max()) + 1)) + lowest
        columns[:, classes] = scores
        return columns

    def refitted(self, x: NDArray[Any], labels: NDArray[np.int64]) -> FunctionModel | None:
        """Return a new estimator with the same settings, fitted to other labels; None for a function."""
        from sklearn.base import clone  # noqa: PLC0415  (only for estimators)

        if not hasattr(self.source, "get_params") or not (
            hasattr(self.source, "fit") or hasattr(self.source, "partial_fit")
        ):
            return None
        estimator = clone(self.source)
        if hasattr(estimator, "fit"):
            estimator.fit(x, labels)
        else:
            estimator.partial_fit(x, labels, classes=np.unique(labels))
        return FunctionModel(estimator)


def _as_scores(output: Any) -> NDArray[np.float64]:
    """Return scores as an array; of a list with one array per label (multi-label models), the score of each label."""
    if isinstance(output, list) and output and all(np.ndim(part) == 2 for part in output):
        return np.stack([np.asarray(part, dtype=np.float64)[:, -1] for part in output], axis=1)
    return np.asarray(output, dtype=np.float64)
