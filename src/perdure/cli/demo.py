"""perdure demo: the whole way through the house on data that needs no download."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

if TYPE_CHECKING:
    from perdure.learners.protocols import Protocol
    from perdure.tasks import Benchmark

LEARNERS = ("naive", "ewc", "rehearsal", "cumulative")
REASONS = {"samples": 200, "per_task": 8, "keep_maps": True}
"""A budget that a minute allows; the report says how far it carries."""
BELIEF: dict[str, Any] = {"samples": 20, "permutations": 60, "background": 50}
"""The same for the comparison of explainers, on the first run of each learner."""
AGAIN: dict[str, Any] = {"methods": ("expected_gradients", "grad"), "per_fold": 12, "noise": (0.05, 0.1, 0.3)}
"""And for retraining, on so few digits that the networks err at times: ReCo lives on what only one of two gets right."""
FEW = 25
KEEPER = "rehearsal"
"""The learner whose checkpoints are compared: one that still knows its first tasks at the end."""


def demo(
    out: Annotated[Path, typer.Option(help="Where records, audit and page go.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(help="Runs of each learner.", min=1)] = 3,
) -> None:
    """Train four learners on Split Digits, audit them in every way there is and write a report.

    naive just keeps training and forgets; ewc holds on to the parameters that mattered; rehearsal keeps a few examples;
    cumulative trains anew on everything and shows what was possible.
    """
    import torch

    from perdure import learners, tasks
    from perdure.audits import FILE
    from perdure.audits import audit as audit_records
    from perdure.cli.progress import RunProgress
    from perdure.cli.shapc_output import StabilityProgress
    from perdure.cli.tables import print_audit
    from perdure.figures import accuracy_lines, save

    torch.set_num_threads(1)  # the network is so small that a second thread only costs
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
    _ask_explanations(out, benchmark, protocol)
    with StabilityProgress(Console(stderr=True)) as bars:
        audit = audit_records(out, clamp=True, stability=REASONS, begin=bars.begin)
    audit.save(out / FILE)
    print_audit(audit, console)
    save(accuracy_lines(audit), out / "accuracy.png")
    page = audit.report(out / "report.html")
    console.print(f"The report is in {page}", highlight=False, soft_wrap=True)


def _ask_explanations(out: Path, benchmark: Benchmark, protocol: Protocol) -> None:
    """Leave in the first records whether their explanations can be believed, and whether they survive retraining."""
    from perdure import tasks
    from perdure.audits import across_checkpoints, record_bias, retrain
    from perdure.audits.findings import keep_findings
    from perdure.audits.retraining.maps import Explaining
    from perdure.cli.trust.command import Bar

    explaining = Explaining(samples=50, background=30)
    with Bar(Console(stderr=True)) as bar:
        for name in LEARNERS:
            record_bias(out / benchmark.name / name / "seed-0", progress=bar.show, **BELIEF)
        first = out / benchmark.name / KEEPER / "seed-0"
        again = retrain(
            tasks.load(benchmark.name, per_class=FEW),
            network=protocol.network,
            training=protocol.training,
            explaining=explaining,
            workers=1,
            out=out / "retraining",
            progress=bar.show,
            **AGAIN,
        )
        pairs = across_checkpoints(
            first, methods=AGAIN["methods"], explaining=explaining, per_task=8, progress=bar.show
        )
    keep_findings(first, again.summary(), pairs.summary())
