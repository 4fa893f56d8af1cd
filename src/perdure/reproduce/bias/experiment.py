"""The `Experiment` type, the `Workspace` it runs in, and the page that collects the experiments' sections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perdure.base.files import write_atomically

INTRODUCTION = """\
# Can the explanations be trusted? The bias paper's experiments, reproduced

Each section is created by `perdure reproduce NAME --data-dir DATA`. Intervals and ± are 95 % unless stated otherwise.
Some networks are smaller or trained for fewer epochs than the paper's, as stated in each section, so compare rankings;
compare magnitudes only with caution. [What is computed](../trust.md).
"""
Progress = Callable[[str, int, int], None]
"""Callback with the current activity, the number of finished items and their total."""


@dataclass(frozen=True)
class Workspace:
    """The directories and the progress callback of an experiment."""

    data_dir: Path | None
    """Directory of the data sets."""
    out: Path
    """Directory of trained networks and intermediate results, shared by all experiments."""
    pictures: Path
    """Directory of the figures."""
    progress: Progress


@dataclass(frozen=True)
class Experiment:
    """The reproduction of one figure or table of the paper."""

    name: str
    title: str
    paper: str
    """The figure or table, such as ``Figure 5``."""
    run: Callable[[Workspace], str]
    """Computes the results, saves the figures, and returns the section in Markdown, without its heading."""


def experiment_section_file(out: Path, experiment: Experiment) -> Path:
    """Return the file that stores an experiment's section of the page."""
    return out / "sections" / f"{experiment.name}.md"


def run_experiment(experiment: Experiment, workspace: Workspace) -> None:
    """Run one experiment and store its section."""
    workspace.out.mkdir(parents=True, exist_ok=True)
    workspace.pictures.mkdir(parents=True, exist_ok=True)
    text = experiment.run(workspace)
    write_atomically(experiment_section_file(workspace.out, experiment), text.encode())


def write_page(experiments: Sequence[Experiment], out: Path, page: Path) -> None:
    """Write the page from all stored sections.

    An experiment without a stored section keeps its section of the existing page; otherwise it is listed as not run.
    """
    earlier = read_page_sections(page) if page.exists() else {}
    lines = [INTRODUCTION]
    for experiment in experiments:
        lines += [f"## {experiment.title} ({experiment.paper})", "", f"`perdure reproduce {experiment.name}`", ""]
        file = experiment_section_file(out, experiment)
        lines += [file.read_text().strip() if file.exists() else earlier.get(experiment.name, "Not run yet."), ""]
    write_atomically(page, "\n".join(lines).encode())


def read_page_sections(page: Path) -> dict[str, str]:
    """Return the text of each section of a page that `write_page` wrote, by the name of its experiment."""
    sections = {}
    for part in f"\n{page.read_text()}".split("\n## ")[1:]:
        command, _, text = part.partition("\n\n")[2].partition("\n\n")
        name = command.strip("` \n").rpartition(" ")[2]
        sections[name] = text.strip()
    return sections
