"""`perdure.compare`: what changed between two versions of a model, and is it more than retraining changes?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from perdure.audits.shapc.runner import checked_settings, chosen_method, settings_to_json
from perdure.audits.shapc.values import AUTO, ShapcSettings
from perdure.base.errors import InputError
from perdure.comparisons.accuracy import (
    Decisions,
    compare_accuracy,
    compare_confidences,
    correct_answers,
    decide,
    find_flips,
    missing_accuracy,
)
from perdure.comparisons.displayed import different_reasons, flip_positions, shown_examples
from perdure.comparisons.map_units import run_map_units
from perdure.comparisons.maps import (
    MapMaker,
    Progress,
    chosen_positions,
    count_units,
    flat_indices,
    networks_to_explain,
)
from perdure.comparisons.reasons import compare_reasons, explain_versions, reasons_tests
from perdure.comparisons.references import reference_step, train_references
from perdure.comparisons.results import Comparison, ConfidenceChange, Flips, ReasonsChange, ShownExample
from perdure.comparisons.verdict import decide_verdict
from perdure.comparisons.versions import Loading, Version, check_versions, load_references, load_version
from perdure.engine import Engine, fixed_threads
from perdure.metrics.prediction_tests import FEWEST_REFERENCES
from perdure.runs.data import UserData, with_background
from perdure.runs.networks import NetworkSource

EXAMPLES = 40
"""Test examples that are explained, unless a number is given."""
DEFAULT_METHOD = "expected_gradients"


def compare(
    old: Any,
    new: Any,
    *,
    network: NetworkSource | None = None,
    data: Any = None,
    reference: Sequence[Any] | int | None = None,
    method: str = DEFAULT_METHOD,
    target: Literal["label", "predicted"] | int = "label",
    background: Any = None,
    samples: int = 200,
    examples: int | None = None,
    seed: int = 0,
    settings: ShapcSettings | None = None,
    data_dir: Path | None = None,
    device: str = "cpu",
    cache: str | Path | None = None,
    level: float = 0.95,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> Comparison:
    """Compare two versions of a model on one test set: accuracy, flips, confidences and reasons.

    Parameters
    ----------
    old, new
        records, checkpoints, weights files, modules, or models outside PyTorch (an object with ``predict_proba`` or
        ``decision_function``, or a function from arrays to scores). Of a record, the network after the last step.
    network
        for weights files, and for records that do not name their own: a function that returns the network
    data
        (inputs, labels), a Dataset or a DataLoader, or a list of them, one per task. Not needed for records of
        ``perdure run``.
    reference
        versions retrained on the same data as OLD with other seeds, at least three; a folder stands for the records
        in it. They define harmless change. A number trains the record of OLD that many times again.
    method
        the explainer. Models without gradients get Shapley values instead of expected gradients.
    target
        the output that is explained: of the true class, of the class that each version predicts, or an index
    background
        background inputs; by default training examples of a benchmark, or the test inputs
    samples
        random draws per map
    examples
        test examples to explain, balanced over tasks and classes (40). Accuracies are computed on all test examples.
    seed
        of the choice of examples and of the draws
    settings
        further settings of the explanations; ``method``, ``target``, ``samples`` and ``seed`` above are then ignored
    data_dir
        where data files are
    device
        where networks run
    cache
        a folder for finished maps, from which the same call resumes
    level
        confidence level of the intervals of the accuracy difference and of the similarity of the reasons
    progress
        called with a description, the number of finished parts and the number of all parts
    engine
        where references are trained and maps computed; it needs ``cache``. By default in this process

    Returns
    -------
    Comparison
        ``verdict`` is "changed" if NEW differs from OLD and the references by more than they differ from each other
        (``p_value`` below .05), "unchanged" if not, and "undecided" if that cannot be tested. Without references, versions
        with the same outputs and maps are "unchanged", and a significant change of the accuracy is "changed".

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import perdure
    >>> _ = torch.manual_seed(0)
    >>> x, x_test = torch.randn(300, 3), torch.randn(300, 3)
    >>> def train(labels, seed):
    ...     _ = torch.manual_seed(seed)
    ...     net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    ...     optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    ...     for _ in range(60):
    ...         optimizer.zero_grad()
    ...         nn.functional.cross_entropy(net(x), labels).backward()
    ...         optimizer.step()
    ...     return net.eval()

    Four versions decide by the first column, the new one by the second:

    >>> old, *retrained = [train((x[:, 0] > 0).long(), seed) for seed in range(4)]
    >>> new = train((x[:, 1] > 0).long(), seed=4)
    >>> data = (x_test, (x_test[:, 0] > 0).long())
    >>> settings = {"data": data, "reference": retrained, "samples": 50, "examples": 10}
    >>> comparison = perdure.compare(old, new, **settings)
    >>> comparison.verdict, comparison.p_value < 0.01
    ('changed', True)
    >>> bool(comparison.accuracy.high < 0), len(comparison.flips.negative) > 100
    (True, True)

    A further retrained version is no change:

    >>> perdure.compare(old, train((x[:, 0] > 0).long(), seed=5), **settings).verdict
    'unchanged'
    """
    if examples is not None and examples < 2:
        raise InputError(f"examples: expected at least 2, got {examples}")
    if engine is not None and cache is None:
        raise InputError("engine: needs cache=, a folder for the maps")
    loading = Loading(network, _user_data(data, background), data_dir, device, _columns(data))
    wanted = settings or ShapcSettings(method, samples, target=target, seed=seed)
    folder, count = None if cache is None else Path(cache), EXAMPLES if examples is None else examples
    with nullcontext() if engine is None else fixed_threads(engine.threads):
        return _compare(old, new, reference, loading, wanted, count, folder, level, progress, engine)


def _compare(
    old: Any,
    new: Any,
    reference: Sequence[Any] | int | None,
    loading: Loading,
    settings: ShapcSettings,
    examples: int,
    cache: Path | None,
    level: float,
    progress: Progress | None,
    engine: Engine | None,
) -> Comparison:
    first, second = load_version(old, loading, "OLD"), load_version(new, loading, "NEW")
    references = _references(reference, loading, (first, second), progress, engine)
    tasks = check_versions(first, [second, *references])
    versions = [first, second, *references]
    chosen, notes = _settings(settings, versions)
    classes = class_names(first)
    decisions = decide(first, second, references, tasks) if first.run.data.kind == "classes" else None
    flips = _no_flips() if decisions is None else find_flips(decisions)
    positions = chosen_positions(first, tasks, examples, chosen.seed)
    parts = count_units(positions) * networks_to_explain(len(versions), chosen)
    if engine is not None and cache is not None:
        further = [] if decisions is None else flip_positions(decisions, flips)
        report = None if progress is None else partial(progress, "explaining")
        run_map_units(versions, loading, chosen, cache, positions, further, engine, report)
    maker = MapMaker(first, chosen, cache, progress, parts)
    indices = flat_indices(first, tasks, positions)
    explained = explain_versions(maker, first, second, references, positions)
    reasons = compare_reasons(explained, first, chosen, indices, level)
    names = _task_names(first)
    accuracy = missing_accuracy(first.run.data.kind)
    confidences: tuple[ConfidenceChange, ...] = ()
    shown: tuple[ShownExample, ...] = ()
    if decisions is not None:
        accuracy = compare_accuracy(decisions, classes, names, level)
        confidences = compare_confidences(decisions, chosen.seed)
        reasons = _with_same_answer(reasons, decisions, positions, classes)
        known = dict(zip(indices.tolist(), reasons.per_example.tolist(), strict=True))
        shown = shown_examples(maker, (first, second), decisions, flips, reasons.same_answer, known, classes)
    identical = first.digest == second.digest or _same_behavior(first, second, tasks, reasons)
    tests = reasons_tests(explained, first, chosen, None if decisions is None else correct_answers(decisions))
    p_value, verdict, because = decide_verdict(accuracy, reasons, tests, identical)
    return Comparison(
        old=first.name,
        new=second.name,
        accuracy=accuracy,
        flips=flips,
        confidences=confidences,
        reasons=reasons,
        references=tuple(version.name for version in references),
        tests=tests,
        p_value=p_value,
        verdict=verdict,
        because=because,
        tasks=tuple(names[task] for task in tasks),
        classes=tuple(classes),
        examples=sum(len(first.run.data.labels(task)) for task in tasks),
        settings=settings_to_json(chosen),
        data=first.test_digest(),
        notes=tuple(notes),
        shown=shown,
    )


def _user_data(data: Any, background: Any) -> UserData | None:
    if data is None:
        if background is not None:
            raise InputError("background: needs data=(inputs, labels)")
        return None
    if isinstance(data, UserData):
        return data
    sets, third = with_background(data)
    return UserData.checked(sets, third if background is None else background)


def _columns(data: Any) -> tuple[str, ...]:
    """Return the names of the columns if the inputs are a DataFrame."""
    inputs = data[0] if isinstance(data, tuple) and data else None
    return tuple(str(name) for name in getattr(inputs, "columns", ()))


def _references(
    reference: Sequence[Any] | int | None,
    loading: Loading,
    versions: tuple[Version, Version],
    progress: Progress | None,
    engine: Engine | None,
) -> list[Version]:
    if reference is None:
        return []
    if isinstance(reference, str | Path):
        reference = [reference]
    if isinstance(reference, int):
        _check_count(reference)
        reference = train_references(versions[0], reference, loading.data_dir, loading.device, progress, engine)
    references = load_references(list(reference), loading, versions)
    _check_count(len(references))
    return [reference_step(version, versions[0]) for version in references]


def _check_count(count: int) -> None:
    if count < FEWEST_REFERENCES:
        raise InputError(
            f"reference: {count} version{'s' if count != 1 else ''}, expected at least {FEWEST_REFERENCES} that were retrained "
            "on the same data; fewer do not show how much retraining changes"
        )


def _settings(settings: ShapcSettings, versions: Sequence[Version]) -> tuple[ShapcSettings, list[str]]:
    """Return settings that suit all versions, and notes on what was changed."""
    methods = [chosen_method(version.run) for version in versions] if settings.method in (AUTO, DEFAULT_METHOD) else []
    other = next((method for method in methods if method != DEFAULT_METHOD), None)
    notes = []
    if other is not None:
        notes.append(f"the versions have no gradients, so they are explained with {other}")
        settings = replace(settings, method=other)
    return checked_settings(settings, versions[0].run), notes


def class_names(version: Version) -> list[str]:
    """Return the name of each output."""
    known = version.run.class_names
    return [known[unit] if unit < len(known) else f"class {unit + 1}" for unit in range(version.outputs)]


def _task_names(version: Version) -> list[str]:
    """Return the names of all tasks, made unique by their numbers where they are equal."""
    names = [str(name) for name in version.run.tasks]
    return [f"{name} ({index + 1})" if names.count(name) > 1 else name for index, name in enumerate(names)]


def _no_flips() -> Flips:
    empty = np.zeros(0, dtype=np.int64)
    return Flips(empty, empty, empty)


def _with_same_answer(
    reasons: ReasonsChange, decisions: Decisions, positions: Sequence[Any], classes: Sequence[str]
) -> ReasonsChange:
    examples = different_reasons(decisions, positions, reasons, classes)
    return replace(reasons, same_answer=examples)


def _same_behavior(old: Version, new: Version, tasks: Sequence[int], reasons: ReasonsChange) -> bool:
    """Return whether two versions give the same scores and the same maps."""
    same_scores = all(np.array_equal(old.scores(task), new.scores(task)) for task in tasks)
    return same_scores and (math.isnan(reasons.shapc.mean) or reasons.shapc.mean >= 1 - 1e-9)
