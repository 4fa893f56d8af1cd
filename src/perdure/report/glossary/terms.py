"""An entry of the glossary."""

from __future__ import annotations

from dataclasses import dataclass

OVER_RUNS = "Averaged over runs with a 95 % interval."
"""How every metric of a run becomes the number of a learner."""


@dataclass(frozen=True)
class Term:
    """What a number means, how it was computed and what it must not be used for, in at most two sentences each."""

    key: str
    """Name of the metric in audits, or a name of its own."""
    name: str
    """Spelled out: "positive backward transfer"."""
    meaning: str
    """What the number says, with its range and direction, for readers who do not know the method."""
    computed: str
    """The formula in words, what it is averaged over, and how its interval is made."""
    not_for: str
    """The most likely misuse, and why it is one."""
    short: str = ""
    """Abbreviation or label, if there is one: "BWT+"."""
    source: str = ""
    """Paper and equation, or page of the guide."""
