"""perdure demo: train, examine and report on data that need no download."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

if TYPE_CHECKING:
    from perdure.learners.protocols import Protocol
    from perdure.tasks import Benchmark

LEARNERS = ("naive", "ewc", "rehearsal", "cumulative")
SHAPC_EXAMPLES = 8
"""Few examples, so that the demo takes about a minute; the report says whether the samples are sufficient."""
BIAS: dict[str, Any] = {"examples": 20, "background": 50}
PERMUTATIONS = 60
RETRAINING: dict[str, Any] = {"methods": ("expected_gradients", "grad"), "examples": 12, "noise": (0.05, 0.1, 0.3)}
PER_CLASS = 25
"""Few training examples, so that the networks make errors: ReCo needs examples that only one of two networks gets right."""
COMPARED = "rehearsal"
"""The learner whose checkpoints are compared: it still knows its first tasks at the end."""


def demo(
    out: Annotated[Path, typer.Option(help="Where records, audit and report are written.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(help="Runs per learner.", min=1)] = 3,
) -> None:
    """Train four learners on Split Digits, run every audit and write a report.

    naive keeps training and forgets; ewc protects important parameters; rehearsal stores a few examples; cumulative trains from
    scratch on all data so far and shows what is possible.
    """
    import torch

    from perdure import learners, tasks
    from perdure.audits import FILE, audit
    from perdure.cli.output.audit_tables import print_audit
    from perdure.cli.output.names import line_writer
    from perdure.cli.output.progress import AuditProgress
    from perdure.cli.output.run_progress import RunProgress
    from perdure.figures import accuracy_lines, save

    torch.set_num_threads(1)  # the network is so small that a second thread is slower
    console = Console()
    benchmark = tasks.load("split-digits")
    protocol = learners.protocol_for(benchmark)
    for name in LEARNERS:
        for seed in range(seeds):
            run = learners.Run(
                benchmark, learners.get(name), network=protocol.network, training=protocol.training, seed=seed
            )
            with RunProgress(f"{name} seed {seed}", console) as progress:
                learners.execute(run, out / benchmark.name / name / f"seed-{seed}", progress)
    _examine_explanations(out, benchmark, protocol)
    with AuditProgress(Console(stderr=True)) as bars:
        result = audit(out, clamp=True, shapc=True, examples=SHAPC_EXAMPLES, keep_maps=True, progress=bars.start)
    result.save(out / FILE)
    print_audit(result, console)
    save(accuracy_lines(result), out / "accuracy.png")
    page = result.report(out / "report.html")
    line_writer(console, soft_wrap=True)(f"Report: {page}")


def _examine_explanations(out: Path, benchmark: Benchmark, protocol: Protocol) -> None:
    """Measure attribution bias and retraining, and store the results in the records of the first seed."""
    from perdure import tasks
    from perdure.audits import BiasSettings, MapSettings, across_checkpoints, record_bias, retrain, save_findings
    from perdure.cli.output.progress import PartProgress

    settings = MapSettings(samples=50, background=30)
    with PartProgress(Console(stderr=True)) as bars:
        for name in LEARNERS:
            record_bias(
                out / benchmark.name / name / "seed-0",
                settings=BiasSettings(permutations=PERMUTATIONS),
                progress=bars.show,
                **BIAS,
            )
        record = out / benchmark.name / COMPARED / "seed-0"
        retrained = retrain(
            tasks.load(benchmark.name, per_class=PER_CLASS),
            network=protocol.network,
            training=protocol.training,
            settings=settings,
            workers=1,
            out=out / "retraining",
            progress=bars.show,
            **RETRAINING,
        )
        checkpoints = across_checkpoints(
            record, methods=RETRAINING["methods"], settings=settings, examples=8, progress=bars.show
        )
    save_findings(record, retrained.summary(), checkpoints.summary())
