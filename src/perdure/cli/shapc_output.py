"""The SHAPC part of perdure audit: its progress bar and its tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from perdure.audits import Audit, Interval, ShapcResult
from perdure.base.errors import InputError
from perdure.cli.bars import make_bar
from perdure.cli.options import own_function

if TYPE_CHECKING:
    from torch import nn


class StabilityProgress:
    """One bar for each run, with the estimate so far; nothing in a pipe."""

    def __init__(self, console: Console) -> None:
        self.bar = make_bar(console)

    def __enter__(self) -> StabilityProgress:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def begin(self, run: str) -> Callable[[int, int, Interval | None], None]:
        """Return the progress of a run."""
        line = self.bar.add_task("/".join(Path(run).parts[-2:]), total=None, detail="")

        def show(done: int, total: int, estimate: Interval | None) -> None:
            self.bar.update(line, completed=done, total=total)
            if estimate is not None:
                self.bar.update(line, detail=f"SHAPC-Mean {estimate}")

        return show


def own_network(text: str | None) -> Callable[[], nn.Module] | None:
    """Return the function that makes a user's network."""
    return None if text is None else own_function(text)


def own_data(text: str | None) -> Any:
    """Return a user's test data, (inputs, labels) for each task, from the function that makes them."""
    if text is None:
        return None
    data = own_function(text)()
    if not isinstance(data, Sequence):
        raise InputError(
            f"--data {text}: expected a list of (inputs, labels), one for each task, got {type(data).__name__}"
        )
    return data


def print_stability(audit: Audit, console: Console) -> None:
    """Print the comparison, its differences, and for each run how far its numbers can be read."""
    table = Table(title="Does it keep deciding for the same reasons?", title_justify="left", header_style="bold")
    columns = ("average_accuracy", "forgetting", "shapc_mean", "shapc_var", "shapc_calibrated")
    table.add_column("learner")
    for name in ("average accuracy ↑", "forgetting ↓", "SHAPC-Mean ↑", "SHAPC-Var ↓", "calibrated ↑"):
        table.add_column(name, justify="right")
    for entry in audit.learners:
        table.add_row(entry.title, *(str(entry.measures[name]) for name in columns))
    console.print(table)
    for difference in audit.differences:
        console.print(str(difference), highlight=False, markup=False, soft_wrap=True)
    for result in audit.stability:
        print_result(result, console)


def print_result(result: ShapcResult, console: Console) -> None:
    """Print what one run's SHAPC consists of."""
    say = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    taken = sum(len(rows) for rows in result.samples.values())
    say("")
    say(f"{result.run}: SHAPC-Mean {result.mean}, Var {result.var}, calibrated {result.calibrated}")
    say(f"  {taken} samples ({result.stopped}), {result.settings['method']} of {result.settings['explained']}")
    if "chosen" in result.settings:
        say(f"  the explainer was chosen by attribution bias: {result.settings['chosen']}")
    for name, value in result.outcomes.items():
        say(f"  {name}: {value if value.n else 'no such sample'} ({value.n} pairs of sample and step)")
    shares = ", ".join(
        f"{share:.0%}: {mean.mean:.3f} (Var {var.mean:.3f})" for share, (mean, var) in result.sensitivity.items()
    )
    say(f"  important share {shares}")
    if result.retraining is not None:
        say(f"  retraining alone: {result.retraining.mean}, calibrated {result.retraining.calibrated}")
    if result.degenerate:
        say(f"  set aside, without an important region: {result.degenerate} pairs of sample and step")
    say(f"  {result.budget}")
