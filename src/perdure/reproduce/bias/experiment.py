"""The `Experiment` type, the `Workspace` it runs in, and the page that collects the experiments' sections."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

import perdure
from perdure.base.files import read_json, write_atomically, write_json
from perdure.engine import Engine, UnitContext
from perdure.reproduce.provenance import current_provenance

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
    engine: Engine | None = None
    """Where Shapley values are computed; by default in this process."""

    @property
    def folders(self) -> Folders:
        """The directories, which can be sent to another process."""
        return Folders(self.data_dir, self.out, self.pictures)


@dataclass(frozen=True)
class Folders:
    """The directories of a `Workspace`."""

    data_dir: Path | None
    out: Path
    pictures: Path

    def workspace(self, context: UnitContext | None = None, engine: Engine | None = None) -> Workspace:
        """Return the workspace; the progress goes to the unit, if there is one."""

        def report(part: str, done: int, total: int) -> None:
            if context is not None:
                context.report(done, total, part)

        return Workspace(self.data_dir, self.out, self.pictures, report, engine)


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


def run_experiment(experiment: Experiment, workspace: Workspace, run: Callable[[Workspace], str] | None = None) -> None:
    """Run one experiment, or the given part of it, and store its section, and what it was computed with."""
    workspace.out.mkdir(parents=True, exist_ok=True)
    workspace.pictures.mkdir(parents=True, exist_ok=True)
    section = experiment_section_file(workspace.out, experiment)
    key = section_key(workspace)
    text = f"{current_provenance()}\n\n{(run or experiment.run)(workspace)}"
    write_atomically(section, text.encode())
    write_json(section.with_suffix(".json"), key)


def has_current_section(experiment: Experiment, workspace: Workspace) -> bool:
    """Return whether an experiment has a stored section that was computed with the present code and data."""
    section = experiment_section_file(workspace.out, experiment)
    stamp = section.with_suffix(".json")
    return section.exists() and stamp.exists() and read_json(stamp) == section_key(workspace)


def section_key(workspace: Workspace) -> dict[str, Any]:
    """Return what the sections depend on: the code, the data files, the number of threads and the folder of the figures."""
    folder = workspace.data_dir or Path()
    files = sorted(path for pattern in ("*", "*/*") for path in folder.glob(pattern)) if workspace.data_dir else []
    return {
        "code": _code_digest(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "data": [[str(path.relative_to(folder)), path.stat().st_size] for path in files if path.is_file()],
        "pictures": str(workspace.pictures),
    }


@cache
def _code_digest() -> str:
    """Return a digest of all source files of the package."""
    digest = hashlib.sha256()
    for file in sorted(Path(perdure.__file__).parent.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def write_page(experiments: Sequence[Experiment], out: Path, page: Path) -> None:
    """Write the page from all stored sections.

    An experiment without a stored section keeps its section of the existing page; otherwise it is listed as not run.
    """
    earlier = read_page_sections(page) if page.exists() else {}
    lines = [INTRODUCTION]
    for experiment in experiments:
        lines += [f"## {experiment.title} ({experiment.paper})", "", f"`perdure reproduce {experiment.name}`", ""]
        file = experiment_section_file(out, experiment)
        lines += [
            file.read_text(encoding="utf-8").strip() if file.exists() else earlier.get(experiment.name, "Not run yet."),
            "",
        ]
    write_atomically(page, "\n".join(lines).encode())


def read_page_sections(page: Path) -> dict[str, str]:
    """Return the text of each section of a page that `write_page` wrote, by the name of its experiment."""
    sections = {}
    for part in f"\n{page.read_text(encoding='utf-8')}".split("\n## ")[1:]:
        command, _, text = part.partition("\n\n")[2].partition("\n\n")
        name = command.strip("` \n").rpartition(" ")[2]
        sections[name] = text.strip()
    return sections
