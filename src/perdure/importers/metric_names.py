"""Names of logged metrics: those of avalanche, and families of names that differ in the number of the task."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from perdure.base.errors import InputError
from perdure.base.files import MOST_STEPS, shorten_text

_AVALANCHE = re.compile(
    r"(?P<metric>Top1_Acc_Exp|Loss_Exp)/eval_phase/(?P<stream>\w{1,80})_stream/(?:Task\d{1,9}/)?Exp(?P<task>\d{1,9})"
)
_NUMBER = re.compile(r"\d+")
_STREAMS = ("test", "eval", "valid", "val", "dev")
_WORDS = {"accuracy": ("acc",), "loss": ("loss", "ppl", "perplexity", "nll")}


@dataclass(frozen=True)
class MetricFamily:
    """Logged metrics of one measure: the name of each task's metric, tasks counted from 0."""

    pattern: str
    """The common name, with ``{task}`` in place of the task."""
    names: dict[str, int]
    """The task of each metric, by its full name."""
    task_names: tuple[str, ...]
    """Names of the tasks; empty if they are numbered."""
    others: tuple[str, ...] = ()
    """Patterns of other families that could have been meant."""

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return max(self.names.values()) + 1


def find_family(where: str, names: Iterable[str], *, losses: bool, metric: str | None) -> MetricFamily:
    """Return the metrics that hold the accuracy (or the loss) of each task.

    ``metric`` is a pattern with ``{task}``. Without it, avalanche's names are used if there are any, and otherwise the only
    family of names that differ in one number and contain "acc" (or "loss", "ppl", "perplexity").
    """
    known = list(dict.fromkeys(names))
    if metric is not None:
        return _given_family(where, known, metric)
    found = _avalanche_families(where, known, losses) or _numbered_families(known, losses)
    if not found:
        what = "losses" if losses else "accuracies"
        raise InputError(
            f"{where}: found no metrics that look like {what} of single tasks among {shorten_text(', '.join(known))}."
            " Name them:"
            " --metric 'eval/{task}/acc'."
        )
    best = min(_rank(family.pattern) for family in found)
    candidates = [family for family in found if _rank(family.pattern) == best]
    if len(candidates) > 1:
        raise InputError(
            f"{where}: several metrics could be meant: {shorten_text(', '.join(family.pattern for family in candidates))}."
            f" Choose one: --metric '{candidates[0].pattern}'."
        )
    (chosen,) = candidates
    others = tuple(family.pattern for family in found if family is not chosen)
    return MetricFamily(chosen.pattern, chosen.names, chosen.task_names, others)


def _given_family(where: str, known: list[str], metric: str) -> MetricFamily:
    before, placeholder, after = metric.partition("{task}")
    if not placeholder:
        raise InputError(f"--metric {metric}: expected {{task}} in place of the task, as in eval/{{task}}/acc.")
    inside = {
        name: name[len(before) : len(name) - len(after)]
        for name in known
        if len(name) > len(before) + len(after) and name.startswith(before) and name.endswith(after)
    }
    if not inside:
        raise InputError(f"{where}: no metric matches --metric {metric}; there are {shorten_text(', '.join(known))}.")
    if all(part.isascii() and part.isdigit() for part in inside.values()):
        return _numbered(where, metric, {name: _index(part) for name, part in inside.items()})
    return MetricFamily(metric, {name: index for index, name in enumerate(inside)}, tuple(inside.values()))


def _index(digits: str) -> int:
    return int(digits) if len(digits) <= 9 else MOST_STEPS + 1


def _numbered(where: str, pattern: str, indices: dict[str, int]) -> MetricFamily:
    """Return a family whose tasks are numbered from 0 or from 1."""
    first = min(indices.values())
    if first > 1 or sorted(set(indices.values())) != list(range(first, first + len(indices))):
        raise InputError(
            f"{where}: expected the metrics {pattern} of the tasks 0, 1, 2, ... or 1, 2, 3, ..., got tasks"
            f" {', '.join(map(str, sorted(indices.values())[:10]))}."
        )
    return MetricFamily(pattern, {name: index - first for name, index in indices.items()}, ())


def _avalanche_families(where: str, known: list[str], losses: bool) -> list[MetricFamily]:
    wanted = "Loss_Exp" if losses else "Top1_Acc_Exp"
    by_stream: dict[str, dict[str, int]] = {}
    for name in known:
        match = _AVALANCHE.fullmatch(name)
        if match and match["metric"] == wanted:
            by_stream.setdefault(match["stream"], {})[name] = int(match["task"])
    return [
        _numbered(where, f"{wanted}/eval_phase/{stream}_stream/.../Exp{{task}}", indices)
        for stream, indices in by_stream.items()
    ]


def _numbered_families(known: list[str], losses: bool) -> list[MetricFamily]:
    words = _WORDS["loss" if losses else "accuracy"]
    patterns: dict[str, dict[str, int]] = {}
    for name in known:
        lower = name.lower()
        if not any(word in lower for word in words) or "train" in lower or len(name) > 300:
            continue
        for match in _NUMBER.finditer(name):
            pattern = f"{name[: match.start()]}{{task}}{name[match.end() :]}"
            patterns.setdefault(pattern, {})[name] = _index(match[0])
    families = []
    for pattern, indices in patterns.items():
        numbers = sorted(indices.values())
        if len(numbers) > 1 and numbers[0] <= 1 and numbers == list(range(numbers[0], numbers[0] + len(numbers))):
            families.append(_numbered("metrics", pattern, indices))
    return families


def _rank(pattern: str) -> int:
    lower = pattern.lower()
    return next((rank for rank, stream in enumerate(_STREAMS) if stream in lower), len(_STREAMS))
