"""perdure reproduce --list: what can be recomputed, what it needs, and what came out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.padding import Padding

from perdure.cli.output.json_output import print_json
from perdure.cli.output.names import shown_name

if TYPE_CHECKING:
    from perdure.reproduce.catalogue import Item, Scale

STYLES = {"agrees": "green", "differs": "yellow", "not run": "dim", "measured": "green"}


def print_catalogue(paper: str | None, as_json: bool) -> None:
    """Print the tables and figures of one paper, or of all papers."""
    from perdure.reproduce.catalogue import papers, select

    items = select(paper)
    if as_json:
        print_json([item.as_json() for item in items])
        return
    console = Console()
    for key, title in papers().items():
        if chosen := [item for item in items if item.paper == key]:
            _print_paper(console, key, title, chosen)
    console.print(
        "Core-hours are for one core without other work; those at the paper's size are estimated from multiply-adds."
    )
    console.print("Finished parts are reused, so an interrupted command can be run again.")


def _print_paper(console: Console, key: str, title: str, items: Sequence[Item]) -> None:
    console.print(shown_name(f"{title} ({key})" if title != key else title), style="bold", highlight=False)
    for item in items:
        console.print(Padding(shown_name(item.items), (0, 0, 0, 2), expand=False), style="cyan", highlight=False)
        for line, style in _lines(item):
            console.print(Padding(shown_name(line), (0, 0, 0, 4), expand=False), style=style, highlight=False)
    console.print()


def _lines(item: Item) -> list[tuple[str, str | None]]:
    lines: list[tuple[str, str | None]] = [(item.shows, None)]
    if item.command:
        lines.append((f"perdure reproduce {item.command}", "bold"))
        full = "--scale paper" if item.has_paper_scale else "at the paper's size, for which there is no option"
        lines.append((f"{needs(item.small)}; {full}: {needs(item.full)}", None))
    if item.last is not None:
        lines.append((f"run {item.last.date} at commit {item.last.commit}, docs/results/{item.page}", None))
    lines.append((item.statement(), STYLES[item.outcome]))
    return lines


def needs(scale: Scale) -> str:
    """Return the data and the core-hours of a scale as words."""
    return f"{scale.data}, {scale.core_hours:,g} core-hour{'' if scale.core_hours == 1 else 's'}"
