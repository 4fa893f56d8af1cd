"""Reading of results in any supported format: detect, read, name, and say what was understood."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perdure.base.errors import InputError
from perdure.base.files import LARGEST_TEXT, shorten_text
from perdure.importers.imported_run import IMPORTERS, ImportedRun, Importer, ReadOptions
from perdure.importers.run_names import compile_group, name_runs
from perdure.importers.source import MOST_FILES, Source, find_sources
from perdure.record.schema import MANIFEST

TABLE_SUFFIXES = (".csv", ".tsv", ".txt", ".dat", ".json")


class NoResultsError(InputError):
    """Raised if a folder holds no results of a known format."""


@dataclass(frozen=True)
class Imported:
    """What was read: the runs, and the files of the given folders that no reader knows."""

    runs: tuple[ImportedRun, ...]
    skipped: tuple[Path, ...] = ()

    @property
    def formats(self) -> dict[str, int]:
        """The number of runs of each format, by the title of its reader."""
        counts: dict[str, int] = {}
        for run in self.runs:
            title = IMPORTERS.get(run.format).title
            counts[title] = counts.get(title, 0) + 1
        return counts

    @property
    def groups(self) -> dict[str, dict[str, list[int | None]]]:
        """The seeds of each learner on each benchmark."""
        groups: dict[str, dict[str, list[int | None]]] = {}
        for run in self.runs:
            groups.setdefault(run.measurements.benchmark, {}).setdefault(run.learner, []).append(run.seed)
        return groups


def read(
    paths: str | Path | Iterable[str | Path],
    *,
    percent: bool = False,
    losses: bool = False,
    metric: str | None = None,
    curriculum: str | Sequence[str | int] | None = None,
    group: str | None = None,
    learner: str | None = None,
) -> Imported:
    r"""Return the runs in files and folders of other frameworks. The format is detected from the content.

    Parameters
    ----------
    paths
        files, or folders that contain such files
    percent
        accuracies are percentages; for tables, W&B and TensorBoard (other formats define it)
    losses
        read losses, lower is better, instead of accuracies
    metric
        the metric to read, with ``{task}`` in place of the task (``eval/{task}/acc``); for W&B, TensorBoard and
        lm-evaluation-harness
    curriculum
        the task of each step, by name or number (from 1), or these separated by commas; for results that do not
        state it
    group
        pattern of the paths, ``{learner}/{seed}/*.csv``; by default learner and seed are taken from the files, or from the
        names of files and folders
    learner
        name of the learner of all runs

    Examples
    --------
    >>> from pathlib import Path
    >>> from perdure import importers
    >>> rows = "after_task,task_1,task_2", "1,90,10", "2,60,80"
    >>> _ = Path("ewc_seed3.csv").write_text("\n".join(rows))
    >>> (run,) = importers.read("ewc_seed3.csv", percent=True).runs
    >>> run.learner, run.seed, run.table.tolist()
    ('ewc', 3, [[0.9, 0.1], [0.6, 0.8]])
    """
    tasks = curriculum.split(",") if isinstance(curriculum, str) else curriculum
    options = ReadOptions(
        percent, losses, metric, None if tasks is None else tuple(str(task).strip() for task in tasks)
    )
    if group is not None:
        compile_group(group)  # an invalid pattern is reported before files are read
    given = [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    if not given:
        raise InputError("paths: expected at least one file or folder.")
    _check_repeated(given)
    sources: dict[str, list[Source]] = {}
    skipped: list[Path] = []
    for path in given:
        source = Source(path)
        _refuse_records(source.path)
        found = detect(source)
        if found is None and source.suffix in TABLE_SUFFIXES and source.text:
            found = IMPORTERS.get("table")  # it says what is wrong with the table
        if found is not None:
            sources.setdefault(found.name, []).append(source)
        elif source.is_folder:
            _search(source.path, sources, skipped)
        else:
            raise InputError(_unknown(source))
    runs = [run for name, entries in sources.items() for run in IMPORTERS.get(name).read(entries, options)]
    if not runs:
        looked = f" ({len(skipped)} files of unknown formats, such as {skipped[0].name})" if skipped else ""
        raise NoResultsError(
            f"{given[0]}: found no results here{looked}. Supported: {', '.join(sorted(IMPORTERS.summaries().values()))}."
        )
    named = name_runs(runs, group)
    if learner is not None:
        named = [replace(run, learner=learner) for run in named]
    return Imported(tuple(named), tuple(skipped))


def _check_repeated(paths: Sequence[Path]) -> None:
    seen: set[Path] = set()
    for path in paths:
        resolved = path.absolute()
        if resolved in seen:
            raise InputError(f"{path}: given twice; pass each run once")
        seen.add(resolved)


def detect(source: Source) -> Importer | None:
    """Return the reader of a file or folder, or None. Generic formats are tried last."""
    known = sorted(IMPORTERS.entries().values(), key=lambda entry: (entry.is_generic, entry.name))
    return next((entry for entry in known if entry.detects(source)), None)


def _search(folder: Path, sources: dict[str, list[Source]], skipped: list[Path]) -> None:
    """Add the files and folders with a known format below a folder; generic tables count only if nothing else is known."""
    generic: dict[str, list[Source]] = {}
    specific: dict[str, list[Source]] = {}
    waiting, visited = [folder], 0
    while waiting:
        for entry in find_sources(waiting.pop(0)):
            visited += 1
            if visited > MOST_FILES:
                raise InputError(f"{folder}: expected at most {MOST_FILES} files and folders. Pass the files.")
            source = Source(entry)
            _refuse_records(entry)
            found = detect(source)
            if found is not None:
                (generic if found.is_generic else specific).setdefault(found.name, []).append(source)
            elif source.is_folder:
                waiting.append(entry)
            else:
                skipped.append(entry)
    if specific:
        skipped += [source.path for entries in generic.values() for source in entries]
    for name, entries in (specific or generic).items():
        sources.setdefault(name, []).extend(entries)


def _refuse_records(path: Path) -> None:
    if path.is_dir() and (path / MANIFEST).is_file():
        raise InputError(f"{path}: a record of perdure, not a result of another framework. Use perdure audit {path}.")


def _unknown(source: Source) -> str:
    """Return what is wrong with a file of an unknown format."""
    if not source.head:
        return f"{source.path}: the file is empty."
    if (size := source.path.stat().st_size) > LARGEST_TEXT:
        return f"{source.path}: expected at most {LARGEST_TEXT} bytes, got {size}."
    titles = ", ".join(sorted(IMPORTERS.summaries().values()))
    start = shorten_text(source.first_line, 60) or "binary data"
    return f"{source.path}: unknown format; the file starts with {start!r}. Supported: {titles}."
