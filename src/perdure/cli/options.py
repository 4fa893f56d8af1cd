"""Option types and parsers that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from perdure.base.errors import InputError, error_suggestion
from perdure.cli.output.names import echo

if TYPE_CHECKING:
    from perdure.audits import Audit
    from perdure.explain import Series

RecordPaths = Annotated[
    list[Path], typer.Argument(metavar="PATH...", help="Records, or folders that contain records.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_IMPORTING = "Results of other frameworks"
ResultPaths = Annotated[
    list[Path],
    typer.Argument(
        metavar="PATH...", help="Records, or results of other frameworks (perdure import --help).", show_default=False
    ),
]
Percent = Annotated[
    bool,
    typer.Option(
        "--percent", help="Accuracies in tables, W&B and TensorBoard are percentages.", rich_help_panel=_IMPORTING
    ),
]
Losses = Annotated[
    bool,
    typer.Option("--losses", help="Read losses (lower is better), such as perplexities.", rich_help_panel=_IMPORTING),
]
MetricName = Annotated[
    str | None,
    typer.Option(
        "--metric",
        help="The metric to read, with {task} in place of the task: 'eval/{task}/acc'.",
        rich_help_panel=_IMPORTING,
    ),
]
TrainedTasks = Annotated[
    str | None,
    typer.Option(
        "--curriculum",
        help="The task of each checkpoint, if the files do not state it: boolq,rte,boolq",
        rich_help_panel=_IMPORTING,
    ),
]
Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        help="Pattern of the paths that names learner and seed: '{learner}/{seed}/*.csv'.",
        rich_help_panel=_IMPORTING,
    ),
]
DataDir = Annotated[Path | None, typer.Option(help="Folder of data files; missing files are downloaded to it.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, mps, ...")]
BatchSize = Annotated[int | None, typer.Option(help="Inputs per forward pass.", min=1)]
Weights = Annotated[
    list[str] | None,
    typer.Option(
        "--weights",
        help="W1, W2, W2-printed, W3, or criteria with weights that sum to 1: A=.5,REM=.5, or mine:A=.5,REM=.5 with a "
        "name. Repeatable.",
    ),
]
Renormalise = Annotated[
    bool, typer.Option("--renormalise", help="Compute scores over the known criteria if some are missing.")
]
CountTeachers = Annotated[bool, typer.Option("--count-teachers", help="Count frozen old networks (teachers) in MS.")]
MethodOptions = Annotated[
    list[str] | None,
    typer.Option("--option", help="An option of the method: epsilon=1e-6, or lrp.epsilon=1e-6. Repeatable."),
]
Epochs = Annotated[int | None, typer.Option(help="Epochs per task.")]
TrainingBatchSize = Annotated[int | None, typer.Option(help="Examples per training batch.")]
LearningRate = Annotated[float | None, typer.Option(help="Learning rate.")]
Optimizer = Annotated[str | None, typer.Option(help="sgd, adam or adagrad.")]
Momentum = Annotated[float | None, typer.Option(help="Momentum of sgd.")]
Width = Annotated[int | None, typer.Option(help="Width of a built-in network.", min=1)]
KeepCheckpoints = Annotated[
    str,
    typer.Option(
        "--keep-checkpoints",
        help="Checkpoints to keep: all, last, or every-K (one after every K steps, and the last).",
        metavar="all|last|every-K",
    ),
]
Amp = Annotated[
    Literal["off", "bfloat16", "float16"] | None,
    typer.Option("--amp", help="Automatic mixed precision of training: off, bfloat16 or float16.", show_default="off"),
]
EXECUTES = "The file is executed: use only code that you trust."
"""Ends the help of every option that takes file.py:function."""
OWN_MODEL = "Your own network and data"
DATA_FORMS = (
    "file.py:function or file.py:object, (inputs, labels) for each task; or a .npz, .pt or .csv file with x, y and optionally "
    "task; or an image folder; or a folder with one file per task"
)
Network = Annotated[
    str | None,
    typer.Option(
        help=f"file.py:function that returns your network; with an argument step, the ready model after it. {EXECUTES}",
        rich_help_panel=OWN_MODEL,
    ),
]
Data = Annotated[
    str | None,
    typer.Option(
        help=f"Your test data, preprocessed for the network: {DATA_FORMS}. {EXECUTES}", rich_help_panel=OWN_MODEL
    ),
]
Layout = Annotated[
    str | None,
    typer.Option(
        help="Layout of time series: nct for (n, channels, time), ntc for (n, time, channels).",
        rich_help_panel=OWN_MODEL,
    ),
]
AllowCode = Annotated[
    bool,
    typer.Option(
        "--allow-code",
        help="Execute the code that the record refers to. Remembered on this machine until the file changes.",
        rich_help_panel=OWN_MODEL,
    ),
]
Store = Annotated[
    bool,
    typer.Option(
        "--store",
        help="Store where --network and --data are in the record, so that other commands find them.",
        rich_help_panel=OWN_MODEL,
    ),
]
PerClass = Annotated[int | None, typer.Option(help="Training examples per class.", min=1)]


_CORES = os.cpu_count() or 1
MOST = 1_000_000
"""Largest value of integer options that have no entry in `LARGEST`."""
LARGEST = {
    "seed": 2**32 - 1,
    "seeds": 10_000,
    "orders": 10_000,
    "tune": 10_000,
    "folds": 10_000,
    "untrained": 1_000,
    "retrain": 1_000,
    "design": 1_000,
    "starts": 100_000,
    "bootstrap": 100_000,
    "permutations": 100_000,
    "batch_size": 10**9,
    "threads": max(256, _CORES),
    "workers": max(16, _CORES),
}
"""Largest values of integer options. Threads and workers that a machine cannot start end the process, so they are limited."""
LARGEST_FLOAT = 1e30
"""Largest value of other numbers: networks compute in single precision, up to 3.4e38."""


def parse_weights(texts: list[str]) -> dict[str, str | Mapping[str, float]]:
    """Return named weight vectors: ``W1``, or ``A=.5,REM=.5`` as a separate vector; ``mine:`` in front names it."""
    from perdure.metrics import score_weights

    weights: dict[str, str | Mapping[str, float]] = {}
    for text in texts:
        label, colon, value = text.rpartition(":")
        name_of_vector = label if colon else text
        if "=" not in value:
            score_weights(value)
            weights[name_of_vector] = value
            continue
        vector = {}
        for part in value.split(","):
            name, _, weight = part.partition("=")
            try:
                vector[name.strip()] = float(weight)
            except ValueError:
                raise InputError(f"--weights {text}: expected name=number, got {part!r}") from None
        score_weights(vector)
        weights[name_of_vector] = vector
    return weights


def parse_integers(text: str | None, option: str) -> list[int] | None:
    """Return the integers of a comma-separated option, or None if it was not given."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option} {text}: expected integers separated by commas, as in 1,2,3") from None


def parse_assignments(texts: list[str] | None, option: str) -> dict[str, str]:
    """Return name=value options as a dictionary."""
    pairs = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"{option} {text}: expected name=value")
        pairs[name.strip()] = value.strip()
    return pairs


def parse_method_options(texts: list[str] | None, methods: list[str]) -> dict[str, dict[str, object]]:
    """Return the options of each method: ``method.name=value``, or ``name=value`` for the methods that have the option.

    An option that no method has is passed to all of them, which refuse it by name.
    """
    from perdure.explain import get_explainer

    options: dict[str, dict[str, object]] = {}
    for name, value in parse_assignments(texts, "--option").items():
        method, dot, option = name.rpartition(".")
        if dot and method not in methods:
            raise InputError(f"--option {name}={value}: method {method!r} is not used; used: {', '.join(methods)}")
        if dot:
            options.setdefault(method, {})[option] = value
            continue
        holders = [method for method in methods if name in get_explainer(method).defaults]
        for holder in holders or methods:
            options.setdefault(holder, {})[name] = value
    for method, own in options.items():
        get_explainer(method).parsed_options(own)
    return options


def parse_target(text: str) -> str | int:
    """Return the name of a target, or the index of an output, which is 1-based on the command line."""
    return int(text) - 1 if text.isdigit() and int(text) > 0 else text


def check_baseline_option(baseline: str | None) -> None:
    """Refuse an unknown name of a baseline before any work."""
    from perdure.explain.baselines import NAMED_BASELINES

    if baseline is not None and baseline not in NAMED_BASELINES:
        raise InputError(f"--baseline {baseline}: {error_suggestion(baseline, list(NAMED_BASELINES))}")


def output_file_option(path: Path, name: str) -> Path:
    """Return a path, or the file of this name in it if it is a folder."""
    return path / name if path.is_dir() else path


def result_folder(path: Path) -> Path:
    """Return the folder in which results of a path are written: the path itself, or the folder of a file."""
    return path.parent if path.is_file() else path


Expect = Annotated[
    str | None,
    typer.Option(
        "--expect",
        help="Compare the result with an audit.json, or with the fingerprint of an audit; exit code 1 if they differ.",
        metavar="AUDIT",
        show_default=False,
    ),
]


def check_expect_option(expected: str) -> None:
    """Refuse a wrong --expect before any work."""
    from perdure.audits.fingerprint import check_expected_form

    try:
        check_expected_form(expected)
    except InputError as error:
        raise InputError(f"--expect {error}") from None


def check_expected_audit(audit: Audit, expected: str) -> None:
    """Print whether an audit equals the expected one; if not, print what differs and exit with 1."""
    from perdure.audits.fingerprint import describe_differences

    differences = describe_differences(audit, expected)
    if not differences:
        echo(f"The audit is identical to the expected one (fingerprint {audit.fingerprint}).", err=True)
        return
    echo("The audit differs from the expected one:", err=True)
    for line in differences:
        echo(f"  {line}", err=True)
    raise typer.Exit(1)


def given_options(**values: Any) -> dict[str, Any]:
    """Return the options that were given (not None)."""
    return {name: value for name, value in values.items() if value is not None}


def user_network(text: str, layout: str | None = None) -> Any:
    """Return what a user's --network names: a function that makes a network, a network, or a list of ready models."""
    from perdure.base.user_code import load_object

    source = load_object(text)
    if layout is None:
        return source
    return _with_layout(source, layout)


def _with_layout(source: Any, layout: str) -> Any:
    """Return a source of networks whose inputs have a stated layout."""
    from perdure.explain import Series

    if layout not in ("nct", "ntc"):
        raise InputError(f"--layout {layout}: expected nct for (n, channels, time) or ntc for (n, time, channels)")
    series = Series(layout)  # type: ignore[arg-type]
    if isinstance(source, list | tuple):
        return [_described(model, series) for model in source]
    if not callable(source) or hasattr(source, "parameters"):
        return _described(source, series)
    return partial(_make_described, source, series)  # unlike a nested function, it can be sent to another process


def _make_described(source: Callable[..., Any], series: Series, *arguments: Any, **keywords: Any) -> Any:
    return _described(source(*arguments, **keywords), series)


def _described(model: Any, series: Series) -> Any:
    from perdure.explain import adapt

    inputs = getattr(model, "inputs", None)
    if inputs is not None:
        layout = series.layout
        raise InputError(f"--layout {layout}: the network already describes its inputs: {inputs}; remove --layout")
    return adapt(model, series)


def user_data(text: str) -> Any:
    """Return the test data that --data names: a function, an object, a file or a folder."""
    from perdure.runs.data_sources import read_user_data

    try:
        data = read_user_data(text)
    except InputError as error:
        raise InputError(f"--data {error.cli or error}") from None
    if data is None:
        raise InputError(f"--data {text}: the function returned None; expected (inputs, labels) for each task")
    return data


def user_sources(
    records: Sequence[Path],
    network: str | None,
    data: str | None,
    layout: str | None = None,
    allow_code: bool = False,
    store: bool = False,
) -> tuple[Any, Any]:
    """Return the user's network and test data for some records, and store them in the records if requested.

    Code that the records refer to is allowed on this machine with ``allow_code``.
    """
    if store and network is None and data is None:
        raise InputError("--store stores --network and --data in the record; pass at least one of them")
    if layout is not None and network is None:
        raise InputError("--layout needs --network")
    if network is None and data is None and not allow_code:
        return None, None
    from perdure.record import find_records
    from perdure.runs.permissions import allow_code as allow
    from perdure.runs.permissions import store_references

    if store and layout is not None:
        raise InputError(
            "--layout cannot be stored; return perdure.adapt(network, Series(layout)) from the function instead"
        )
    given = (None if network is None else user_network(network, layout), None if data is None else user_data(data))
    if store:
        for record in find_records(records):
            store_references(record, network, data)
    if allow_code:
        allow(find_records(records))
    return given


def check_device_option(device: str) -> None:
    """Refuse a device that this machine or this build of torch does not have."""
    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"--device {device}: not available ({reason})") from None


def model_source(text: str, name: str) -> Any:
    """Return a path, or the model that file.py:model names; a function without arguments is called."""
    file, colon, _ = text.rpartition(":")
    if not colon or Path(text).exists() or len(file) == 1:  # a single letter before the colon is a drive
        return Path(text)
    from perdure.base.user_code import UserFunction, load_object
    from perdure.runs.networks import accepts_no_arguments

    model = load_object(text)
    if isinstance(model, UserFunction) and accepts_no_arguments(model.function):
        model = model()
    if model is None:
        raise InputError(f"{name} {text}: the function returned None; expected a model")
    return model


def allow_code_of(*texts: str) -> None:
    """Allow the code that the records among some paths refer to."""
    from perdure.record import find_records
    from perdure.runs.permissions import allow_code

    paths = [Path(text) for text in texts if Path(text).is_dir()]
    if paths:
        allow_code(find_records(paths))


Details = Annotated[
    bool,
    typer.Option("--details", help="Print every number of every learner, not only the answer and the ranked table."),
]
VerdictPolicy = Annotated[
    Path | None,
    typer.Option(
        "--policy",
        help="A policy file whose thresholds and ranking replace the defaults of the verdicts (docs/report.md).",
    ),
]
