"""Methods that compare OLD with NEW only: the rule of a cloud monitor, two packages from PyPI, and a test on accuracy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from perdure.reproduce.change_detection.models import ExplainedModel

NDCG = 0.9
SHAP_MONITOR_PSI = 0.25
"""shap-monitor calls a higher PSI a significant shift. It raises no alarm itself."""
LEVEL = 0.05


@dataclass(frozen=True)
class Outcome:
    """A method's answer for one trial. A higher score means a larger change."""

    score: float
    alarm: bool


Compare = Callable[[ExplainedModel, ExplainedModel, int], Outcome]


@dataclass(frozen=True)
class Alternative:
    """A method, called with OLD, NEW and the number of explained examples."""

    name: str
    title: str
    default: str
    """When it raises an alarm."""
    compare: Compare
    uses_attributions: bool = True
    package: str | None = None
    """Its distribution on PyPI, with the version; None if it needs no package."""

    def reason_not_run(self) -> str | None:
        """Return why the method cannot be run; None if it can."""
        if self.package is None:
            return None
        name, _, version = self.package.partition("==")
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            return f"{name} is not installed; run `pip install --no-deps {self.package}`"
        if installed != version:
            return f"{name} {installed} is installed; run `pip install --no-deps {self.package}`"
        return None


def feature_importance(model: ExplainedModel, examples: int) -> NDArray[np.float64]:
    """Return the mean absolute attribution of each feature."""
    importance: NDArray[np.float64] = np.abs(model.features[:examples].astype(np.float64)).mean(axis=0)
    return importance


def importance_ndcg(old: Any, new: Any) -> float:
    """Return nDCG of the importance of features under NEW, with the importance under OLD as relevance.

    Amazon SageMaker Clarify's definition: features are ranked by their importance under NEW, the feature at rank i adds its
    importance under OLD divided by log2(i + 1), and the sum is divided by that of the ranking under OLD. Clarify reports a
    violation below .9.
    """
    from sklearn.metrics import ndcg_score  # noqa: PLC0415  (takes two seconds)

    return float(ndcg_score(np.asarray(old)[None], np.asarray(new)[None]))


def _ndcg(old: ExplainedModel, new: ExplainedModel, examples: int) -> Outcome:
    value = importance_ndcg(feature_importance(old, examples), feature_importance(new, examples))
    return Outcome(1 - value, value < NDCG)


def _shiftshap(old: ExplainedModel, new: ExplainedModel, examples: int) -> Outcome:
    report = import_module("shiftshap").compare(old.features[:examples], new.features[:examples])
    return Outcome(float(report.to_frame()["psi"].max()), report.n_high > 0)


def _shap_monitor(old: ExplainedModel, new: ExplainedModel, examples: int) -> Outcome:
    backend = _Attributions({"old": old.features[:examples], "new": new.features[:examples]})
    analyzer = import_module("shapmonitor.analysis").SHAPAnalyzer(backend)
    score = float(analyzer.compare_versions("old", "new")["psi"].max())
    return Outcome(score, score > SHAP_MONITOR_PSI)


class _Attributions:
    """A backend for shap-monitor (its protocol ``shapmonitor.types.Backend``) that holds attributions in memory."""

    def __init__(self, attributions: dict[str, NDArray[np.float32]]) -> None:
        self.attributions = attributions

    def read(self, *, model_version: str) -> Any:
        """Return the attributions of a version as a data frame with one column per feature."""
        values = self.attributions[model_version]
        columns = [f"shap_{number}" for number in range(values.shape[1])]
        return import_module("pandas").DataFrame(values, columns=columns)


def two_proportion_p_value(first: int, second: int, examples: int) -> float:
    """Return the two-sided p-value of the unpaired z-test for the numbers of correct answers to ``examples`` questions each."""
    pooled = (first + second) / (2 * examples)
    error = math.sqrt(pooled * (1 - pooled) * 2 / examples)
    return 1.0 if error == 0 else float(2 * stats.norm.sf(abs(first - second) / examples / error))


def _accuracy(old: ExplainedModel, new: ExplainedModel, examples: int) -> Outcome:  # noqa: ARG001
    p = two_proportion_p_value(int(old.correct.sum()), int(new.correct.sum()), len(old.correct))
    return Outcome(1 - p, p < LEVEL)


ALTERNATIVES = (
    Alternative("ndcg", "nDCG rule", "nDCG of mean absolute attributions below .9", _ndcg),
    Alternative(
        "shiftshap", "shiftshap", 'PSI of any feature at least .2 ("high")', _shiftshap, package="shiftshap==0.2.0"
    ),
    Alternative(
        "shap-monitor",
        "shap-monitor",
        'PSI of any feature above .25 ("significant")',
        _shap_monitor,
        package="shap-monitor==0.0.12",
    ),
    Alternative("accuracy", "z-test on accuracy", "p < .05, two-sided, unpaired", _accuracy, uses_attributions=False),
)
