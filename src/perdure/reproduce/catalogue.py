"""The tables and figures of the five papers: how to recompute each, what it needs, and what came out.

``catalogue.toml`` describes the items. ``measured.json`` says when and at which commit each was run last; it is copied from
the provenance lines of the pages of results by ``make results-check``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from perdure.base.errors import InputError, error_suggestion
from perdure.base.files import read_json
from perdure.reproduce.provenance import Provenance, read_provenance

Outcome = Literal["agrees", "differs", "not run", "measured"]
FOLDER = Path(__file__).parent
ITEMS, MEASURED = FOLDER / "catalogue.toml", FOLDER / "measured.json"


@dataclass(frozen=True)
class Scale:
    """What one scale of an item needs."""

    data: str
    core_hours: float


@dataclass(frozen=True)
class LastRun:
    """When an item was run last, and with which code."""

    date: str
    commit: str
    software: str


@dataclass(frozen=True)
class Item:
    """A table or figure of a paper, or a study of this project."""

    paper: str
    items: str
    shows: str
    command: str
    """The arguments of ``perdure reproduce``; empty if there is no target."""
    small: Scale
    full: Scale
    """What the paper's own size needs."""
    has_paper_scale: bool
    """Whether ``--scale paper`` runs it."""
    page: str
    section: str
    outcome: Outcome
    because: str
    last: LastRun | None

    @property
    def target(self) -> str:
        """The target of ``perdure reproduce``; empty if there is none."""
        return self.command.partition(" ")[0]

    @property
    def key(self) -> str:
        """The item's entry in ``measured.json``."""
        return f"{self.page}#{self.section}" if self.page else ""

    def statement(self) -> str:
        """Return the outcome as words: ``agrees``, ``differs because ...``, ``not run because ...``."""
        if not self.because:
            return self.outcome
        return (
            f"{self.outcome} because {self.because}"
            if self.outcome in ("differs", "not run")
            else (f"{self.outcome} ({self.because})")
        )

    def as_json(self) -> dict[str, Any]:
        """Return the item for ``--json``."""
        entry = asdict(self)
        del entry["section"]
        return {**entry, "command": f"perdure reproduce {self.command}" if self.command else None}


@cache
def papers() -> Mapping[str, str]:
    """Return the titles of the papers by their keys."""
    titles: Mapping[str, str] = _document()["papers"]
    return titles


@cache
def catalogue() -> tuple[Item, ...]:
    """Return all items, in the order of the papers."""
    measured: Mapping[str, Mapping[str, str]] = read_json(MEASURED)
    items = [_item(entry, measured) for entry in _document()["item"]]
    order = list(papers())
    return tuple(sorted(items, key=lambda item: order.index(item.paper)))


def select(paper: str | None) -> Sequence[Item]:
    """Return the items of a paper; None for all."""
    if paper is not None and paper not in papers():
        raise InputError(f"unknown paper {paper!r}, {error_suggestion(paper, list(papers()))}")
    return [item for item in catalogue() if paper in (None, item.paper)]


def section_provenance(text: str, section: str) -> Provenance | None:
    """Return what the first provenance line of a page's section states; an empty section name means the whole page."""
    if section:
        parts = [part for part in f"\n{text}".split("\n## ")[1:] if part.startswith(section)]
        if not parts:
            return None
        text = parts[0]
    lines = read_provenance(text)
    return lines[0] if lines else None


def measured_entries(pages: Path) -> dict[str, dict[str, str]]:
    """Return the content of ``measured.json`` that follows from a folder of pages."""
    entries = {}
    for item in catalogue():
        if not item.page:
            continue
        stated = section_provenance((pages / item.page).read_text(encoding="utf-8"), item.section)
        if stated is None:
            raise InputError(f"{item.page}: no provenance line in the section {item.section!r}")
        entries[item.key] = {"date": str(stated.last), "commit": stated.commit, "software": stated.software}
    return entries


def _document() -> dict[str, Any]:
    return tomllib.loads(ITEMS.read_text(encoding="utf-8"))


def _item(entry: Mapping[str, Any], measured: Mapping[str, Mapping[str, str]]) -> Item:
    page, section = entry.get("page", ""), entry.get("section", "")
    last = measured.get(f"{page}#{section}") if page else None
    return Item(
        paper=entry["paper"],
        items=entry["items"],
        shows=entry["shows"],
        command=entry["command"],
        small=Scale(entry["data"], float(entry["hours"])),
        full=Scale(entry["paper_data"], float(entry["paper_hours"])),
        has_paper_scale=bool(entry.get("paper_scale", False)),
        page=page,
        section=section,
        outcome=entry["outcome"],
        because=entry["because"],
        last=None if last is None else LastRun(**last),
    )
