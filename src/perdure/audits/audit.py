"""Audit the records of runs: performance, and optionally reasons (SHAPC) and causes (CLAMP), with how all were made."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.audits.clamp import LatentProperties, fit_clamp
from perdure.audits.imported import ImportOptions, imported_provenance, read_imported_runs
from perdure.audits.least_biased import common_least_biased_explainer
from perdure.audits.lifelong import lifelong_metrics
from perdure.audits.performance import Weights, audit_runs
from perdure.audits.results import MEASURES, PYTHON_OBJECT, Audit, LearnerAudit, Origin, RunProvenance, read_findings
from perdure.audits.shapc.results import ShapcResult
from perdure.audits.shapc.scores import shapc_result_differences
from perdure.audits.shapc.values import AUTO, LEAST_BIASED, ShapcSettings
from perdure.base.errors import InputError
from perdure.base.files import LARGEST_TEXT, read_bytes
from perdure.base.registry import software_versions
from perdure.engine.study import raise_incomplete
from perdure.importers.source import digest_of_files
from perdure.metrics import CE_EPSILON, Interval, Missing, interval
from perdure.record import Manifest, Measurements, Record, find_records
from perdure.record.reader import MEASUREMENT_FILES, record_digest, split_record_paths
from perdure.record.references import read_references

if TYPE_CHECKING:
    from perdure.audits.shapc.runner import ShapcProgress
    from perdure.engine import Engine
    from perdure.importers import ImportedRun
    from perdure.runs.networks import NetworkSource

StartProgress = Callable[[str], "ShapcProgress"]
"""Called with the path of each run before it is explained; returns the run's progress callback."""
_TRAINING = (
    "epochs",
    "batch_size",
    "lr",
    "optimizer",
    "momentum",
    "weight_decay",
    "milestones",
    "patience",
    "evaluate_every",
)
_DECAY = 0.1
UNSTARTED = "no task is finished yet"
_WITHOUT_OPTION = (
    "decay",
    "tuning_trials",
)  # perdure run has no option for decay, and the tuned settings are passed explicitly


def audit(
    paths: str | Path | Sequence[str | Path],
    *,
    network: NetworkSource | None = None,
    data: Any = None,
    allow_code: bool = False,
    shapc: bool | ShapcSettings = False,
    clamp: bool = False,
    examples: int | None = None,
    precision: float | None = None,
    keep_maps: bool = False,
    retrain_reference: bool = False,
    weights: str | Mapping[str, Weights] | None = None,
    renormalise: bool = False,
    count_teachers: bool = False,
    ce_epsilon: float = CE_EPSILON,
    data_dir: Path | None = None,
    device: str = "cpu",
    importing: ImportOptions | None = None,
    progress: StartProgress | None = None,
    engine: Engine | None = None,
    allow_missing: bool = False,
) -> Audit:
    """Audit the records at or below some paths. Runs of one learner on one benchmark are averaged.

    Parameters
    ----------
    paths
        records, folders that contain records, or results of other frameworks (see `perdure.importers.read`)
    network
        for SHAPC, if the records do not name their own: a function that returns the untrained network, a network, or a
        list of ready models, one after each step (also models outside PyTorch). Passing it computes SHAPC.
    data
        for SHAPC, if the records do not name their own: for each task (inputs, labels), a Dataset or a DataLoader
    allow_code
        execute the code that the records refer to for their network and data, and remember this on this machine
    shapc
        compare the reasons of the checkpoints, with default settings or with `ShapcSettings`
    clamp
        fit CLAMP to the accuracy curves (seconds; minutes with many tasks)
    examples, precision, keep_maps
        settings of SHAPC, see `audit_shapc`
    retrain_reference
        also compare runs of different seeds; a single run is trained again on its first task
    weights, renormalise, count_teachers, ce_epsilon
        settings of the CL_score, see `audit_runs`
    data_dir
        where data files are
    device
        where networks run
    importing
        how results of other frameworks are read
    progress
        called with each run that is explained; returns its progress callback
    engine
        where examples are explained; by default in this process
    allow_missing
        leave out the SHAPC of runs with units that failed on the engine, instead of raising `IncompleteStudyError`

    Returns
    -------
    Audit
        A run without a finished task, or an unfinished run of a learner with finished ones, is listed in ``left_out``. Results
        of `perdure trust` that are stored in the records are included.

    Examples
    --------
    >>> import perdure
    >>> for learner, last in {"ewc": [0.6, 0.8], "naive": [0.2, 0.9]}.items():
    ...     recorder = perdure.Recorder(f"runs/{learner}", tasks=2, learner=learner)
    ...     recorder.after_task(accuracy=[0.9, 0.1])
    ...     recorder.after_task(accuracy=last)
    >>> audit = perdure.audit("runs")
    >>> for entry in audit.learners:
    ...     print(entry.learner, round(entry.measures["forgetting"].mean, 2))
    ewc 0.3
    naive 0.7
    >>> audit.learners[0].measures["forgetting"].reason
    'one run has no interval'
    >>> print(audit.summary().sentence.partition(",")[0])
    Ewc has the best value of 2 learners (70 % accuracy)
    """
    path_list = [paths] if isinstance(paths, str | Path) else list(paths)
    record_paths, other_paths = split_record_paths(path_list)
    reading = importing or ImportOptions()
    imported = read_imported_runs(other_paths, reading) if other_paths else ()
    found = {path: record_digest(path) for path in find_records(record_paths)} if record_paths else {}
    originals = _originals_of_copies(found)
    records = [Record.open(path) for path in found if path not in originals]
    empty = {record.path for record in records if record.manifest.steps_done == 0}
    copies = {str(path): UNSTARTED if first in empty else f"a copy of {first}" for path, first in originals.items()}
    runs, left_out = _usable([record.measurements for record in records] + [run.measurements for run in imported])
    left_out |= copies
    seeds = _known_seeds(records) | {run.name: run.seed for run in imported if run.seed is not None}
    digests = {run.name: digest_of_files(run.files) for run in imported}
    if not runs:
        raise InputError(f"{next(iter(left_out))}: {UNSTARTED}, so there is nothing to audit")
    used = [record for record in records if str(record.path) not in left_out]
    origin = Origin(
        command="audit",
        options={
            "clamp": clamp,
            "weights": weight_options(weights),
            "renormalise": renormalise,
            "count_teachers": count_teachers,
            "ce_epsilon": ce_epsilon,
            **(import_options(reading) if imported else {}),
        },
        imported=tuple(map(str, other_paths)),
        files=record_files(_records_to_keep(used)) | imported_files(imported),
        software=origin_software(),
        named_networks=tuple(
            str(record.path)
            for record in used
            if not record.manifest.network and "network" in read_references(record.path)
        ),
    )
    result = add_trust_to_audit(
        replace(
            audit_runs(runs, weights, renormalise, count_teachers, ce_epsilon=ce_epsilon, seeds=seeds),
            origin=origin,
            left_out=left_out,
            provenance=(
                *(audit_provenance(record) for record in used),
                *(imported_provenance(run) for run in imported),
            ),
            clamp=_fit_clamp(runs) if clamp else (),
            lifelong=lifelong_metrics(imported) if imported else (),
            sources={str(path): digest for path, digest in found.items()} | digests,
        )
    )
    if not shapc and network is None and data is None:
        return result
    from perdure.audits.shapc.runner import audit_shapc, torch_threads  # noqa: PLC0415  (it needs torch)

    if imported:
        raise InputError(
            f"{imported[0].name}: these results hold no networks, so SHAPC cannot be computed. Leave out --shapc."
        )
    sequences = [run for run in runs if not run.is_reference]
    if allow_code:
        from perdure.runs.permissions import allow_code as allow  # noqa: PLC0415  (it needs torch)

        allow(run.run for run in sequences)
    settings, evidence = _explainer_settings(shapc, [run.run for run in sequences])
    references = {run.run: retrain_reference and _other_seed(run, sequences) for run in sequences}
    missing: set[str] = set()
    if engine is not None:
        from perdure.audits.shapc.units import ShapcRequest, explain_runs, run_of_unit  # noqa: PLC0415  (it needs torch)

        requests = [
            ShapcRequest(run.run, settings, network, data, data_dir, device, keep_maps, references[run.run], allow_code)
            for run in sequences
        ]
        study = explain_runs(engine, requests, examples=examples, precision=precision)
        missing = {run_of_unit(outcome.unit) for outcome in study.outcomes if outcome.state != "done"}
        if not allow_missing:
            raise_incomplete(study)
    results = []
    for run in sequences:
        if run.run in missing:
            continue
        reference = references[run.run]
        shapc_result = audit_shapc(
            run.run,
            settings=settings,
            network=network,
            data=data,
            examples=examples,
            precision=precision,
            keep_maps=keep_maps,
            retrain_reference=reference,
            data_dir=data_dir,
            device=device,
            progress=None if progress is None else progress(run.run),
        )
        results.append(replace(shapc_result, settings={**shapc_result.settings, **evidence}))
    explained = {
        "shapc": shapc_options(shapc),
        "examples": examples,
        "precision": precision,
        "keep_maps": keep_maps,
        "retrain_reference": retrain_reference,
        "network": source_text(network),
        "data": source_text(data),
        "allow_code": allow_code,
        "device": device,
    }
    origin = replace(origin, options={**origin.options, **explained}, threads=torch_threads())
    return add_shapc_to_audit(replace(result, origin=origin), results)


def _records_to_keep(records: Sequence[Record]) -> list[Record]:
    """Return the records that no command can write again: those of a user's own loop, and unfinished ones."""
    return [record for record in records if audit_provenance(record).command is None or not record.complete]


def _fit_clamp(runs: Sequence[Measurements]) -> tuple[LatentProperties, ...]:
    other = next((run for run in runs if run.measure != "accuracy"), None)
    if other is not None:
        raise InputError(f"{other.run}: CLAMP is fitted to accuracies, got {other.measure} values. Leave out --clamp.")
    return fit_clamp(runs)


def _originals_of_copies(found: Mapping[Path, str]) -> dict[Path, Path]:
    """Return the records with the same files as an earlier one, such as a backup, and that one; they are not further seeds."""
    first: dict[str, Path] = {}
    return {path: first[digest] for path, digest in found.items() if first.setdefault(digest, path) != path}


def add_trust_to_audit(audit: Audit) -> Audit:
    """Return an audit with the findings of `perdure trust` in its records; findings of deleted records are kept."""
    seeds = {run.run: run.seed for run in audit.provenance}
    known = {findings.run: findings for findings in audit.trust}
    trust = []
    for entry in audit.learners:
        for run in entry.runs:
            if Path(run).is_dir():
                trust.append(read_findings(run, entry.learner, entry.benchmark, seeds.get(run)))
            elif run in known:
                trust.append(known[run])
    return replace(audit, trust=tuple(findings for findings in trust if not findings.empty))


def add_shapc_to_audit(audit: Audit, results: Sequence[ShapcResult]) -> Audit:
    """Return an audit with SHAPC results and the differences between its learners."""
    learners = tuple(
        _with_shapc_measures(entry, [result for result in results if result.run in entry.runs])
        for entry in audit.learners
    )
    return replace(audit, learners=learners, shapc=tuple(results), differences=shapc_result_differences(results))


def _usable(runs: Sequence[Measurements]) -> tuple[list[Measurements], dict[str, str]]:
    """Return the runs that can be averaged, and why the others are left out."""
    finished = {(run.benchmark, run.learner) for run in runs if run.complete}
    usable, left_out = [], {}
    for run in runs:
        if len(run.table) == 0:
            left_out[run.run] = UNSTARTED
        elif not run.complete and (run.benchmark, run.learner) in finished:
            left_out[run.run] = "unfinished, while other runs of the learner are finished"
        else:
            usable.append(run)
    return usable, left_out


def _explainer_settings(shapc: bool | ShapcSettings, records: Sequence[str]) -> tuple[ShapcSettings, dict[str, str]]:
    """Return the settings with the explainer's name, and the evidence if it was chosen by attribution bias."""
    settings = shapc if isinstance(shapc, ShapcSettings) else ShapcSettings(method=AUTO)
    if settings.method != LEAST_BIASED or not records:
        return settings, {}
    verdict = common_least_biased_explainer(records)
    return replace(settings, method=verdict.least), {"chosen": verdict.reading}


def _other_seed(run: Measurements, runs: Sequence[Measurements]) -> bool | str:
    """Return the next run of the same learner and benchmark, or True if there is none."""
    same = [other.run for other in runs if (other.benchmark, other.learner) == (run.benchmark, run.learner)]
    return same[(same.index(run.run) + 1) % len(same)] if len(same) > 1 else True


def _with_shapc_measures(entry: LearnerAudit, results: Sequence[ShapcResult]) -> LearnerAudit:
    values = {
        "shapc_mean": [result.mean for result in results],
        "shapc_var": [result.var for result in results],
        "shapc_calibrated": [result.calibrated for result in results],
    }
    if not results:
        missing = interval([Missing("it learns all tasks at once: there is no later network to compare with")])
        return replace(entry, measures={**entry.measures, **dict.fromkeys(values, missing)})
    measures = {name: _over_runs(name, intervals) for name, intervals in values.items()}
    run_values = {name: tuple(value.mean for value in intervals) for name, intervals in values.items()}
    return replace(entry, measures={**entry.measures, **measures}, run_values={**entry.run_values, **run_values})


def _over_runs(name: str, values: Sequence[Interval]) -> Interval:
    """Return the interval over runs; for a single run, its interval over examples."""
    if len(values) == 1:
        return values[0]
    means = [Missing(value.reason) if value.reason and value.mean != value.mean else value.mean for value in values]
    return interval(means, bounds=MEASURES[name].bounds)


def _known_seeds(records: Sequence[Record]) -> dict[str, int]:
    return {str(record.path): record.manifest.seed for record in records if record.manifest.seed is not None}


def audit_provenance(record: Record) -> RunProvenance:
    """Return the provenance of a record."""
    manifest = record.manifest
    return RunProvenance(
        run=str(record.path),
        learner=manifest.learner,
        benchmark=record.measurements.benchmark,
        seed=manifest.seed,
        command=_repeat_command(manifest),
        settings=manifest.settings,
        network=manifest.network,
        data=manifest.provenance,
        software=manifest.software,
        hardware=manifest.hardware,
        checkpoints={str(step + 1): point.sha256 for step, point in sorted(manifest.checkpoints.items())},
    )


def _repeat_command(manifest: Manifest) -> str | None:
    """Return the ``perdure run`` command that repeats the record, with every setting passed explicitly.

    The command counts seeds from 0, so it also trains the runs with smaller seeds.
    """
    data = manifest.provenance
    if "source" not in data or manifest.seed is None or not manifest.settings or _needs_python(manifest):
        return None
    command = ["perdure", "run", manifest.learner, "--benchmark", str(data["source"])]
    command += ["--seeds", str(manifest.seed + 1), "--scenario", manifest.scenario]
    command += _data_options(data)
    command += _network_options(manifest.network)
    command += [word for name in _TRAINING for word in _option(name, manifest.settings.get(name))]
    learner_settings = [name for name in manifest.settings if name not in (*_TRAINING, *_WITHOUT_OPTION)]
    command += [word for name in learner_settings for word in ("--set", f"{name}={manifest.settings[name]}")]
    command += [word for name in ("device", "threads") for word in _option(name, manifest.hardware.get(name))]
    return shlex.join(command)


def _needs_python(manifest: Manifest) -> bool:
    """Return whether a run has a setting that `perdure run` has no option for."""
    return bool(manifest.provenance.get("seed")) or manifest.settings.get("decay", _DECAY) != _DECAY


def _data_options(data: Mapping[str, Any]) -> list[str]:
    """Return the options of the data. ``--orders N`` makes N class orders; the recorded one is the last."""
    visits = [task + 1 for task in data.get("curriculum", [])]
    plain = visits == list(range(1, len(visits) + 1))
    options = {
        "tasks": data.get("tasks"),
        "orders": data.get("order_seed"),
        "curriculum": None if plain else visits,
        "per_class": data.get("per_class"),
        "validation": data.get("validation") or None,
    }
    return [word for name, value in options.items() for word in _option(name, value)]


def _network_options(network: Mapping[str, Any]) -> list[str]:
    """Return the options of the network; ``module.function`` is a user's function in ``module.py``."""
    name = str(network.get("name", ""))
    module, dot, function = name.rpartition(".")
    return _option("network", f"{module}.py:{function}" if dot else name) + _option("width", network.get("width"))


def _option(name: str, value: object) -> list[str]:
    if value is None or value in ("", [], ()):
        return []
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return [f"--{name.replace('_', '-')}", text]


def origin_software() -> dict[str, str]:
    """Return the versions of Python, perdure, torch and numpy."""
    return software_versions()


def file_digests(files: Iterable[Path]) -> dict[str, str]:
    """Return the SHA-256 of each file, by its path."""
    return {str(file): hashlib.sha256(read_bytes(file, LARGEST_TEXT)).hexdigest() for file in files}


def imported_files(runs: Iterable[ImportedRun]) -> dict[str, str]:
    """Return the SHA-256 of the files from which runs were imported."""
    return file_digests(dict.fromkeys(file for run in runs for file in run.files))


def record_files(records: Iterable[Record]) -> dict[str, str]:
    """Return the SHA-256 of the measurements of some records; record.json holds the digests of the checkpoints."""
    files = (record.path / name for record in records for name in MEASUREMENT_FILES)
    return file_digests(file for file in files if file.exists())


def shapc_options(shapc: bool | ShapcSettings) -> dict[str, Any]:
    """Return the requested settings of SHAPC as JSON values."""
    settings = shapc if isinstance(shapc, ShapcSettings) else ShapcSettings(method=AUTO)
    plain: dict[str, Any] = json.loads(json.dumps(asdict(settings), default=str))
    return plain


def weight_options(weights: str | Mapping[str, Any] | None) -> Any:
    """Return the requested weights as JSON values: a name, or names with vectors."""
    if weights is None or isinstance(weights, str):
        return weights
    return {name: vector if isinstance(vector, str) else dict(vector) for name, vector in weights.items()}


def source_text(source: Any) -> str | None:
    """Return how the command line names a network or data: ``file.py:function`` if it is a function in a user's file."""
    if source is None:
        return None
    path, name = getattr(source, "path", None), getattr(source, "name", None)
    return f"{path}:{name}" if isinstance(path, Path) and isinstance(name, str) else PYTHON_OBJECT


def import_options(options: Any) -> dict[str, Any]:
    """Return how results of other frameworks were read."""
    return {
        name: list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
        for name, value in asdict(options).items()
    }
