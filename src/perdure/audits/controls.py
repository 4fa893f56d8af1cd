"""The two control explainers that carry no information and are run with every comparison."""

from __future__ import annotations

from collections.abc import Sequence

CONTROLS = ("constant", "random")
"""A map of ones, and Gaussian noise drawn for each model and example: the reference points for every score."""


def without_controls(methods: Sequence[str]) -> tuple[str, ...]:
    """Return the explainers without the controls."""
    return tuple(name for name in methods if name not in CONTROLS)


def methods_without_controls(methods: str | Sequence[str]) -> tuple[str, ...]:
    """Return the requested explainers, each once and without the controls; an unknown name raises `InputError`."""
    from perdure.explain import get_explainer  # noqa: PLC0415  (it needs torch)

    names = (methods,) if isinstance(methods, str) else tuple(dict.fromkeys(methods))
    explainers = without_controls(names)
    for name in explainers:
        get_explainer(name)
    return explainers
