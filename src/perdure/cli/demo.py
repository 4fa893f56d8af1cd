"""perdure demo: the whole way through the house on data that needs no download."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

LEARNERS = ("naive", "ewc", "rehearsal", "cumulative")
REASONS = {"samples": 200, "per_task": 8, "keep_maps": True}
"""A budget that a minute allows; the report says how far it carries."""


def demo(
    out: Annotated[Path, typer.Option(help="Where records, audit and page go.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(help="Runs of each learner.", min=1)] = 3,
) -> None:
    """Train four learners on Split Digits, audit them in every way there is and write a report.

    naive just keeps training and forgets; ewc holds on to the parameters that mattered; rehearsal keeps a few examples;
    cumulative trains anew on everything and shows what was possible.
    """
    import torch  # noqa: PLC0415

    from perdure import learners, tasks  # noqa: PLC0415
    from perdure.audit import FILE, audit_records  # noqa: PLC0415
    from perdure.cli.progress import RunProgress  # noqa: PLC0415
    from perdure.cli.stability import StabilityProgress  # noqa: PLC0415
    from perdure.cli.tables import print_audit  # noqa: PLC0415
    from perdure.figures import accuracy_lines, save  # noqa: PLC0415

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
    with StabilityProgress(Console(stderr=True)) as bars:
        audit = audit_records(out, clamp=True, stability=REASONS, begin=bars.begin)
    audit.save(out / FILE)
    print_audit(audit, console)
    save(accuracy_lines(audit), out / "accuracy.png")
    page = audit.report(out / "report.html")
    console.print(f"The report is in {page}", highlight=False, soft_wrap=True)
