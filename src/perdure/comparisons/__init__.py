"""Two versions of a model side by side, and the release gate. Functions that need torch are loaded when first used."""

from importlib import import_module
from typing import TYPE_CHECKING

from perdure.comparisons.results import (
    AccuracyChange,
    Comparison,
    ConfidenceChange,
    ExampleChange,
    FeatureChange,
    Flips,
    GroupChange,
    ReasonsChange,
    ShownExample,
)

if TYPE_CHECKING:
    from perdure.comparisons.comparison import compare

_NEED_TORCH = {"compare": "comparison"}

__all__ = [
    "AccuracyChange",
    "Comparison",
    "ConfidenceChange",
    "ExampleChange",
    "FeatureChange",
    "Flips",
    "GroupChange",
    "ReasonsChange",
    "ShownExample",
    "compare",
]


def __getattr__(name: str) -> object:
    if name in _NEED_TORCH:
        return getattr(import_module(f"perdure.comparisons.{_NEED_TORCH[name]}"), name)
    raise AttributeError(f"module 'perdure.comparisons' has no attribute {name!r}")
