"""Tables of a comparison on the terminal: the verdict first, then the main numbers, then what changed most."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from perdure.cli.output.names import line_writer, shown_name, table_row
from perdure.comparisons import Comparison, FeatureChange, GroupChange

STYLES = {"unchanged": "green", "changed": "red", "undecided": "yellow"}
MOST = 5


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print the verdict, the main numbers, and the classes, tasks and features that changed most."""
    write = line_writer(console)
    console.print(
        Text(f"{comparison.verdict}: ", style=f"bold {STYLES[comparison.verdict]}") + shown_name(comparison.because),
        highlight=False,
    )
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for row in comparison.rows():
        table_row(table, row)
    console.print(table)
    changed = [group for group in comparison.accuracy.by_class if group.p < 0.05]
    _print_groups("Classes with a changed accuracy (Holm)", changed, console)
    _print_groups("Tasks", comparison.accuracy.by_task, console)
    _print_features(comparison.reasons.importance, console)
    _print_examples(comparison, console)
    for note in comparison.notes:
        write(f"note: {note}")


def _print_groups(title: str, groups: Sequence[GroupChange], console: Console) -> None:
    if not groups:
        return
    table = Table(title=title, title_justify="left")
    for name in ("", "OLD", "NEW", "difference", "examples"):
        table.add_column(name, justify="left" if not name else "right")
    for group in groups:
        numbers = f"{group.mean:+.3f} [{group.low:+.3f}, {group.high:+.3f}]"
        table_row(table, (group.name, f"{group.old:.3f}", f"{group.new:.3f}", numbers, str(group.examples)), width=24)
    console.print(table)


def _print_features(features: Sequence[FeatureChange], console: Console) -> None:
    if not features:
        return
    table = Table(title="Largest changes of global importance (simultaneous 95 % intervals)", title_justify="left")
    for name in ("feature", "OLD", "NEW", "difference", "beyond retraining"):
        table.add_column(name, justify="left" if name == "feature" else "right")
    for feature in features[:MOST]:
        numbers = f"{feature.mean:+.3f} [{feature.low:+.3f}, {feature.high:+.3f}]"
        test = feature.retraining
        beyond = "–" if test is None or math.isnan(test.p) else "yes" if test.p < 0.05 else "no"
        table_row(table, (feature.feature, f"{feature.old:.3f}", f"{feature.new:.3f}", numbers, beyond), width=24)
    console.print(table)


def _print_examples(comparison: Comparison, console: Console) -> None:
    write = line_writer(console)
    different = comparison.reasons.same_answer[:MOST]
    if different:
        listed = ", ".join(
            f"{example.position + 1} ({min(max(example.calibrated, 0), 1):.2f})" for example in different
        )
        write(f"Same answer, most different reasons: examples {listed}")
    for name, indices in (("Right to wrong", comparison.flips.negative), ("Wrong to right", comparison.flips.positive)):
        if len(indices):
            listed = ", ".join(str(index + 1) for index in indices[:10].tolist())
            write(f"{name}: examples {listed}{', ...' if len(indices) > 10 else ''}")
