"""The page of all comparisons: a summary, one section per benchmark, and what was not measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from comparison import ERROR, SAME_ERROR, SAME_RESULT, Benchmark, Comparison, NotMeasured
from perdure.reproduce.provenance import Provenance

CLOSE = 1.1
"""Ratios between 1 / 1.1 and 1.1 count as equal: CPU times vary by this much on a shared machine."""
SHORT = {SAME_RESULT: "CPU time", SAME_ERROR: "CPU time", "CPU seconds of a fit": "CPU time", ERROR: "error"}
SYMBOLS = {"": "", "at least": "≥ ", "at most": "≤ "}


@dataclass(frozen=True)
class Section:
    """A benchmark, what it yielded, and where its numbers come from; None if it was not run."""

    benchmark: Benchmark
    items: Sequence[Comparison | NotMeasured] = ()
    provenance: Provenance | None = None

    def comparisons(self) -> list[Comparison]:
        """Return what was measured."""
        return [item for item in self.items if isinstance(item, Comparison)]


def number(value: float) -> str:
    """Return an integer completely, other numbers with three digits, very large and small ones as powers of ten."""
    if isinstance(value, int):
        return f"{value:,}"
    if value != 0 and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.1e}"
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 1000 else f"{rounded:.3g}"


def ratio(comparison: Comparison) -> str:
    """Return the ratio as text, with the sign of a bound."""
    return SYMBOLS[comparison.bound] + number(comparison.ratio)


def better(comparison: Comparison) -> str:
    """Return ``"perdure"``, ``"other"``, ``"equal"``, or ``"unknown"`` if a bound does not decide."""
    if comparison.ratio >= CLOSE:
        return "perdure" if comparison.bound != "at most" else "unknown"
    if comparison.ratio <= 1 / CLOSE:
        return "other" if comparison.bound != "at least" else "unknown"
    return "equal" if not comparison.bound else "unknown"


def verdict(group: Sequence[Comparison]) -> str:
    """Return which side is better by the ratios of one task and one alternative."""
    name = group[0].other.name
    words = {"perdure": "perdure", "other": f"**{name}**", "equal": "about equal", "unknown": "undecided"}
    found = [better(each) for each in group]
    if len(set(found)) == 1 and not is_partial(group):
        return words[found[0]]
    return ", ".join(f"{short(each)}: {words[kind]}" for each, kind in zip(group, found, strict=True))


def is_partial(group: Sequence[Comparison]) -> bool:
    """Return whether errors at a budget were compared without the time."""
    return all(each.quantity == ERROR for each in group)


def short(comparison: Comparison) -> str:
    """Return the quantity in a few words."""
    return SHORT.get(comparison.quantity, comparison.quantity)


def grouped(comparisons: Sequence[Comparison]) -> list[list[Comparison]]:
    """Return the comparisons of the summary, those of the same task with the same alternative together."""
    groups: dict[tuple[str, str, str], list[Comparison]] = {}
    for each in comparisons:
        if each.summary:
            groups.setdefault((each.task, each.other.name, each.other.version), []).append(each)
    return list(groups.values())


def summary_table(groups: Sequence[Sequence[Comparison]]) -> list[str]:
    """Return the lines of the first table."""
    lines = ["| task | ours | compared with | version | alternative / ours | better |", "|---|---|---|---|---|---|"]
    for group in groups:
        first = group[0]
        ratios = "; ".join(f"{short(each)} {ratio(each)}" for each in group)
        cells = (first.task, first.ours.name, first.other.name, first.other.version, ratios, verdict(group))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def answer(groups: Sequence[Sequence[Comparison]]) -> str:
    """Return how often which side is better, in one paragraph."""
    kinds = [{better(each) for each in group} | ({"unknown"} if is_partial(group) else set()) for group in groups]
    won = sum(kind == {"perdure"} for kind in kinds)
    lost = sum("other" in kind for kind in kinds)
    text = f"Of {len(groups)} comparisons with another library, perdure is better in {won}."
    text += f" The other library is better by at least one quantity in {lost}" + (":" if lost else ".")
    if lost:
        names = dict.fromkeys(
            f"{group[0].other.name} ({group[0].task})"
            for group, kind in zip(groups, kinds, strict=True)
            if "other" in kind
        )
        text += " " + "; ".join(names) + "."
    rest = len(groups) - won - lost
    return (
        text + f" In the other {rest}, both are about equal by a quantity, or a bound or a missing time leaves it open."
    )


Cell = Callable[[Sequence[Comparison]], str]


def details(comparisons: Sequence[Comparison]) -> list[str]:
    """Return the lines of the table of a section. Columns without any value are left out."""
    groups: dict[tuple[str, ...], list[Comparison]] = {}
    for each in comparisons:
        groups.setdefault((each.task, each.ours.name, each.other.name, each.other.version), []).append(each)
    quantities = list(dict.fromkeys(each.quantity for each in comparisons))
    side_by_side = len(quantities) == 1 or any(len(group) > 1 for group in groups.values())
    columns: dict[str, Cell] = {
        "task": lambda group: group[0].task,
        "ours": lambda group: group[0].ours.name,
        "compared with": lambda group: f"{group[0].other.name}, {group[0].other.version}",
    }
    if side_by_side:
        for quantity in quantities:
            columns |= _quantity_columns(quantity, only=len(quantities) == 1)
    else:
        columns["quantity"] = lambda group: group[0].quantity
        columns["ours / alternative"] = lambda group: _pair(group[0].ours.value, group[0].other.value)
        columns["**ratio**"] = lambda group: f"**{ratio(group[0])}**"
    if any(each.ours.seconds not in (None, each.ours.value) for each in comparisons):
        columns["CPU s, ours / alternative"] = lambda group: _pair(group[0].ours.seconds, group[0].other.seconds)
    if quantities[0] != ERROR:
        columns["error"] = lambda group: _pair(group[0].ours.error, group[0].other.error)
    columns["evaluations"] = lambda group: _pair(group[0].ours.evaluations, group[0].other.evaluations)
    columns["note"] = lambda group: "; ".join(dict.fromkeys(each.note for each in group if each.note))
    cells = {name: [column(group) for group in groups.values()] for name, column in columns.items()}
    kept = [name for name, column in cells.items() if any(column)]
    lines = [f"| {' | '.join(kept)} |", "|" + "---|" * len(kept)]
    lines += [f"| {' | '.join(row)} |" for row in zip(*(cells[name] for name in kept), strict=True)]
    return lines


def _quantity_columns(quantity: str, only: bool) -> dict[str, Cell]:
    """Return the columns of one quantity: both values, and the ratio."""

    def of(group: Sequence[Comparison]) -> Comparison | None:
        return next((each for each in group if each.quantity == quantity), None)

    def values(group: Sequence[Comparison]) -> str:
        found = of(group)
        return "" if found is None else _pair(found.ours.value, found.other.value)

    def ratios(group: Sequence[Comparison]) -> str:
        found = of(group)
        return "" if found is None else f"**{ratio(found)}**"

    title = "**ratio**" if only else f"**ratio**, {SHORT.get(quantity, quantity)}"
    return {f"{quantity}, ours / alternative": values, title: ratios}


def _pair(first: float | None, second: float | None) -> str:
    """Return both values as text; nothing if there are none."""
    if first is None and second is None:
        return ""
    return " / ".join("–" if value is None else number(value) for value in (first, second))


def page(sections: Sequence[Section], also: Sequence[NotMeasured]) -> str:
    """Return the page. ``also``: what no benchmark compares."""
    libraries = [section for section in sections if not section.benchmark.plain]
    plain = [section for section in sections if section.benchmark.plain]
    groups = grouped([each for section in libraries for each in section.comparisons()])
    plain_groups = grouped([each for section in plain for each in section.comparisons()])
    lines = [HEAD, "", "## Summary", "", answer(groups), "", *summary_table(groups)]
    if plain_groups:
        lines += ["", "Compared with plain code, where no library has the function:", "", *summary_table(plain_groups)]
    for section in sections:
        if section.provenance is None or not section.comparisons():
            continue
        lines += ["", f"## {section.benchmark.title}", "", str(section.provenance), "", section.benchmark.method, ""]
        lines += details(section.comparisons())
    lines += ["", "## Not measured", "", "| task | compared with | reason |", "|---|---|---|"]
    for section in sections:
        if not section.items:
            reason = f"not run: `python benchmarks/run_comparisons.py --only {section.benchmark.name}`"
            lines.append(f"| {section.benchmark.title} |  | {reason} |")
    absent = [item for section in sections for item in section.items if isinstance(item, NotMeasured)]
    lines += [f"| {item.task} | {item.other} | {item.reason} |" for item in [*absent, *also]]
    return "\n".join(lines) + "\n"


HEAD = f"""# Comparisons with other libraries

`make bench` measures everything on this page and writes it. Both sides of a comparison run on the same input in one
run, one thread each. Times are CPU times of a shared machine with other work, so they vary from run to run. A ratio is
the value of the alternative divided by ours: above 1, ours is better. Ratios from {1 / CLOSE:.2g} to {CLOSE} count as
equal; ≥ and ≤ mark bounds. How to run it and all other performance scripts: [performance
scripts](../performance-scripts.md)."""
