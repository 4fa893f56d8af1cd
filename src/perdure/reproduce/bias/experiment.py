"""What every experiment of the bias paper is here: a name, the figure or table it makes again, and a way to run it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perdure.base.files import write_atomically

Progress = Callable[[str, int, int], None]
"""What is being done, how much of it is, and how much there is."""


@dataclass(frozen=True)
class Place:
    """Where an experiment finds its data, keeps networks and values, and puts its pictures; and whom it tells."""

    data_dir: Path | None
    out: Path
    """Shared by all experiments: networks trained for one serve the others."""
    pictures: Path
    progress: Progress


@dataclass(frozen=True)
class Experiment:
    """One figure or table of the paper, made again."""

    name: str
    title: str
    paper: str
    """Which figure or table: ``Figure 5``."""
    run: Callable[[Place], str]
    """Measure, draw, and return the section of the page as Markdown, without its heading."""


def section_file(out: Path, experiment: Experiment) -> Path:
    """Return where an experiment's section is kept until the page is put together."""
    return out / "sections" / f"{experiment.name}.md"


def run_experiment(experiment: Experiment, place: Place) -> None:
    """Run one experiment and keep its section."""
    place.out.mkdir(parents=True, exist_ok=True)
    place.pictures.mkdir(parents=True, exist_ok=True)
    text = experiment.run(place)
    write_atomically(section_file(place.out, experiment), text.encode())


def write_page(experiments: Sequence[Experiment], out: Path, page: Path) -> None:
    """Put all sections that were made on one page, and name those that were not."""
    lines = [
        "# Can the explanation be believed? The bias paper's experiments, made again",
        "",
        "Each part is made by `perdure reproduce NAME --data-dir DATA`; intervals and ± are 95 % unless said otherwise.",
        "Networks are smaller or trained for shorter than the paper's where it says so, so orders can be compared, and sizes",
        "only with care. [What is computed](../trust.md).",
        "",
    ]
    for experiment in experiments:
        lines += [f"## {experiment.title} ({experiment.paper})", "", f"`perdure reproduce {experiment.name}`", ""]
        file = section_file(out, experiment)
        lines += [file.read_text().strip() if file.exists() else "Not run yet.", ""]
    write_atomically(page, "\n".join(lines).encode())
