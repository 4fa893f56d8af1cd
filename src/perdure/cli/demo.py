"""perdure demo: train, examine and report on data that need no download."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from perdure.cli.engines import EngineOptions, UnitBars, Workers

if TYPE_CHECKING:
    from perdure.audits import Audit
    from perdure.engine import Engine
    from perdure.learners.protocols import Protocol

BENCHMARK = "split-digits"
LEARNERS = {
    "naive": "keeps training on the new task only",
    "ewc": "protects the parameters that earlier tasks need",
    "rehearsal": "stores a few examples of earlier tasks and repeats them",
    "cumulative": "trains from scratch on all data so far, which shows what is possible",
}
SHAPC_EXAMPLES = 8
"""Few examples, so that the demo takes about a minute; the report says whether the samples are sufficient."""
BIAS: dict[str, Any] = {"examples": 20, "background": 50}
PERMUTATIONS = 60
RETRAINING: dict[str, Any] = {"methods": ("expected_gradients", "grad"), "examples": 12, "noise": (0.05, 0.1, 0.3)}
PER_CLASS = 25
"""Few training examples, so that the networks make errors: ReCo needs examples that only one of two networks gets right."""
COMPARED = "rehearsal"
"""The learner whose checkpoints are compared: it still knows its first tasks at the end."""
STEPS = 4


def demo(
    out: Annotated[Path, typer.Option(help="Where records, audit and report are written.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(help="Runs per learner.", min=1)] = 3,
    workers: Workers = None,
) -> None:
    """Train four learners on Split Digits, run every audit and write a report.

    naive keeps training and forgets; ewc protects important parameters; rehearsal stores a few examples; cumulative trains from
    scratch on all data so far and shows what is possible.
    """
    import torch  # noqa: F401  (its number of threads is set only if it is loaded)

    from perdure.audits import FILE
    from perdure.cli.output.audit_tables import print_summary
    from perdure.cli.output.names import line_writer
    from perdure.engine import fixed_threads
    from perdure.figures import accuracy_lines, save

    console = Console()
    where = EngineOptions.checked("local", workers, None, None)
    # The network is so small that a second thread is slower.
    with (
        UnitBars(Console(stderr=True), quiet=True) as bars,
        fixed_threads(1),
        where.open_reporting(out, bars=bars) as engine,
    ):
        result = _train_and_audit(out, seeds, engine, console)
    result.save(out / FILE)
    console.print()
    print_summary(result, console)
    save(accuracy_lines(result), out / "accuracy.png")
    page = result.report(out / "report.html")
    console.print()
    line_writer(console, soft_wrap=True)(f"Report: {page}")


def _train_and_audit(out: Path, seeds: int, engine: Engine, console: Console) -> Audit:
    """Train all learners, measure bias and retraining, and return the audit; finished parts are reused."""
    from perdure import learners, tasks
    from perdure.audits import audit
    from perdure.cli.output.names import line_writer

    write = line_writer(console)
    benchmark = tasks.load(BENCHMARK)
    protocol = learners.protocol_for(benchmark)
    runs = f"{seeds} run{'s' if seeds > 1 else ''}"
    write("This demo trains four learners and audits them. It takes a minute or two and downloads nothing.")
    write(f"1/{STEPS} Training. Five tasks of two handwritten digits each, one after another; {runs} per learner.")
    _train(out, seeds, protocol, engine, console)
    write(
        f"2/{STEPS} Trust. Which explanations can be trusted? Nine explainers are compared with Shapley values of the networks."
    )
    _measure_bias(out, engine)
    write(
        f"3/{STEPS} Retraining. Do explanations survive it? Five networks are trained, each without a fifth of the data, and "
        "their explanations are compared."
    )
    _measure_retraining(out, protocol, engine)
    write(
        f"4/{STEPS} Reasons and causes. Does each network still look at the pixels that it looked at when it learned a task "
        "(SHAPC)? Does the algorithm explain the accuracies, or the tasks (CLAMP)?"
    )
    return audit(out, clamp=True, shapc=True, examples=SHAPC_EXAMPLES, keep_maps=True, engine=engine)


def _train(out: Path, seeds: int, protocol: Protocol, engine: Engine, console: Console) -> None:
    """Train all learners, and print the accuracies of each learner on all tasks at the end."""
    import numpy as np

    from perdure.cli.output.names import line_writer
    from perdure.engine import run_units
    from perdure.engine.study import raise_incomplete
    from perdure.learners.units import RunRequest, TrainingOptions, training_unit
    from perdure.record import Record

    units = []
    for name in LEARNERS:
        for seed in range(seeds):
            request = RunRequest(BENCHMARK, {}, name, protocol.network, None, protocol.training, {}, seed)
            units.append(training_unit(request, _record(out, name, seed), TrainingOptions(), study=out))
    raise_incomplete(run_units(engine, units))
    line = line_writer(console, soft_wrap=True)
    width = max(map(len, LEARNERS))
    line(f"    {'':{width}}  accuracy on tasks 1 to 5 after the last task")
    for name, idea in LEARNERS.items():
        tables = [Record.open(_record(out, name, seed)).table[-1] for seed in range(seeds)]
        accuracies = " ".join(f"{accuracy:4.2f}" for accuracy in np.mean(tables, axis=0))
        line(f"    {name:{width}}  {accuracies}   {idea}")


def _record(out: Path, learner: str, seed: int = 0) -> Path:
    return out / BENCHMARK / learner / f"seed-{seed}"


def _measure_bias(out: Path, engine: Engine) -> None:
    """Measure attribution bias and store the results in the records of the first seed."""
    from perdure.audits import BiasSettings, record_bias

    for name in LEARNERS:
        record_bias(_record(out, name), settings=BiasSettings(permutations=PERMUTATIONS), engine=engine, **BIAS)


def _measure_retraining(out: Path, protocol: Protocol, engine: Engine) -> None:
    """Compare explanations of retrained networks and of checkpoints, and store the results in a record."""
    from perdure import tasks
    from perdure.audits import MapSettings, across_checkpoints, retrain, save_findings

    settings = MapSettings(samples=50, background=30)
    retrained = retrain(
        tasks.load(BENCHMARK, per_class=PER_CLASS),
        network=protocol.network,
        training=protocol.training,
        settings=settings,
        out=out / "retraining",
        engine=engine,
        **RETRAINING,
    )
    record = _record(out, COMPARED)
    checkpoints = across_checkpoints(
        record, methods=RETRAINING["methods"], settings=settings, examples=8, engine=engine
    )
    save_findings(record, retrained.summary(), checkpoints.summary())
