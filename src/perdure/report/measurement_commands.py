"""Commands of the reproduction script: their words, and those that repeat the measurements of ``perdure trust``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.audits import CheckpointSummary, RetrainingSummary, RunProvenance, TrustFindings
from perdure.audits.bias.results import BiasResult
from perdure.audits.controls import without_controls

WIDTH = 110
_DIGEST = re.compile(r"[0-9a-f]{64}")
_TRAINING = ("epochs", "batch_size", "lr", "optimizer", "momentum")
Noted = tuple[list[str], str]
"""Notes for a comment, and a command."""


@dataclass(frozen=True)
class Command:
    """A command of perdure. All words are quoted already; arguments follow ``--``, so none is read as an option."""

    name: str
    options: Sequence[str]
    arguments: Sequence[str]
    threads: int | None = None
    may_refuse: bool = False
    """Whether the exit code is 1 although the command succeeds, because an explainer is refused."""

    def __str__(self) -> str:
        threads = [] if self.threads is None else [f"OMP_NUM_THREADS={int(self.threads)}"]
        lines = [" ".join([*threads, "perdure", self.name])]
        for words in [*_with_values(self.options), " ".join(["--", *self.arguments])]:
            if len(lines[-1]) + len(words) > WIDTH:
                lines.append(f"  {words}")
            else:
                lines[-1] += f" {words}"
        return " \\\n".join(lines) + (" || [ $? -eq 1 ]" if self.may_refuse else "")


def _with_values(words: Sequence[str]) -> list[str]:
    """Return every option together with its value, which stays on the same line."""
    joined: list[str] = []
    for word in words:
        if joined and not word.startswith("--") and " " not in joined[-1]:
            joined[-1] += f" {word}"
        else:
            joined.append(word)
    return joined


def option(name: str, value: object) -> list[str]:
    """Return an option of the command line, quoted; an empty list for a value of None."""
    if value is None:
        return []
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return [f"--{name.replace('_', '-')}", shlex.quote(text)]


def weight_text(name: str, vector: str | Mapping[str, float]) -> str:
    """Return a weight vector as ``--weights`` takes it: its name, or its numbers with the name in front."""
    if isinstance(vector, str):
        return vector if name == vector else f"{name}:{vector}"
    text = ",".join(f"{criterion}={weight!r}" for criterion, weight in vector.items())
    return name if ":" not in name and _parsed_weights(name) == dict(vector) else f"{name}:{text}"


def _parsed_weights(text: str) -> dict[str, float]:
    try:
        pairs = [part.split("=") for part in text.split(",")]
        return {name.strip(): float(weight) for name, weight in pairs}
    except ValueError:
        return {}


def trust_commands(findings: TrustFindings, run: RunProvenance, record: str) -> list[Noted]:
    """Return the commands that repeat the measurements of one run; ``record`` is the word for its record."""
    commands = []
    if findings.bias is not None:
        commands.append(_bias_command(findings.bias, record))
    retraining, checkpoints = findings.retraining, findings.checkpoints
    if retraining is not None:
        commands.append(_retraining_command(retraining, run, record))
    if checkpoints is not None and not (retraining is not None and _is_included(retraining, checkpoints)):
        commands.append(_checkpoints_command(checkpoints, record))
    return commands


def _bias_command(bias: BiasResult, record: str) -> Noted:
    key, request = bias.settings.get("key", {}), bias.settings.get("request", {})
    settings = {**bias.settings, **key.get("settings", {})}
    methods = request.get("methods") or [*_explainers(bias), *bias.refused]
    target = key.get("target", bias.target)
    words = _method_words(methods, settings.get("options", {}))
    words += option("examples", request.get("examples", bias.examples))
    words += option("samples", settings.get("samples"))
    words += option("permutations", settings.get("permutations", bias.permutations))
    words += option("background", request.get("background", settings.get("background")))
    words += option("step", key.get("step"))
    words += option("target", target + 1 if isinstance(target, int) else target)
    words += [
        word for name in ("players", "baseline", "layer", "seed") for word in option(name, _named(settings, name))
    ]
    words += place_words(request)
    notes = _unavailable(settings, {"estimator", "batch_size"})
    notes += [f"{name}: an array, which needs Python" for name in ("players", "baseline") if _is_digest(settings, name)]
    return notes, str(Command("trust bias", words, [record], may_refuse=bool(bias.refused)))


def _explainers(bias: BiasResult) -> tuple[str, ...]:
    return without_controls([entry.method for entry in bias.explainers])


def _named(settings: Mapping[str, Any], name: str) -> Any:
    return None if _is_digest(settings, name) else settings.get(name)


def _is_digest(settings: Mapping[str, Any], name: str) -> bool:
    return bool(_DIGEST.fullmatch(str(settings.get(name))))


def _unavailable(settings: Mapping[str, Any], names: set[str]) -> list[str]:
    """Return notes about settings that only Python has."""
    return [
        f"{name} = {settings[name]}: this setting needs Python"
        for name in sorted(names)
        if settings.get(name) is not None
    ]


def _method_words(methods: Sequence[str], options: Mapping[str, Mapping[str, object]]) -> list[str]:
    words = [word for method in methods for word in option("method", method)]
    for method, own in options.items():
        words += [word for name, value in own.items() for word in option("option", f"{method}.{name}={value}")]
    return words


def device_words(request: Mapping[str, Any]) -> list[str]:
    """Return the option of the device, unless it is the default."""
    return option("device", request["device"]) if request.get("device", "cpu") != "cpu" else []


def place_words(request: Mapping[str, Any]) -> list[str]:
    """Return the options of the device and of the threads; the number of workers does not affect results."""
    return [*device_words(request), *option("threads", request.get("threads"))]


def _map_words(methods: Sequence[str], explaining: Mapping[str, Any]) -> list[str]:
    words = _method_words(methods, explaining.get("options") or {})
    for name in ("samples", "background", "target", "players", "layer", "seed"):
        words += option(name, explaining.get(name))
    return words


def _retraining_command(summary: RetrainingSummary, run: RunProvenance, record: str) -> Noted:
    request, explaining = summary.request, summary.explaining
    words = _map_words(request.get("methods") or [*summary.explainers, *summary.refused], explaining)
    words += [*option("folds", summary.folds), *option("examples", summary.per_fold)]
    noise = request.get("noise", [level.share for level in summary.levels if level.top is None and level.share])
    cascade = request.get(
        "cascade_share", next((level.share for level in summary.levels if level.top is not None), None)
    )
    words += option("noise", [_percent(share) for share in noise])
    words += option("top_down", None if cascade is None else _percent(cascade))
    words += [word for name in _TRAINING for word in option(name, summary.training.get(name))]
    words += option("width", request.get("width"))
    if request.get("per_class") != run.data.get("per_class"):
        words += option("per_class", request.get("per_class"))
    if summary.network != run.network.get("name") and "." not in summary.network:
        words += option("network", summary.network)
    words += [*place_words(request), "--out", '"$out"/retraining']
    notes = _unavailable(explaining, {"batch_size"})
    if request.get("seed", explaining.get("seed")) != explaining.get("seed"):
        notes.append(f"the folds have the seed {request['seed']}, the maps {explaining.get('seed')}: this needs Python")
    return notes, str(Command("trust retraining", words, [record], may_refuse=bool(summary.refused)))


def _checkpoints_command(summary: CheckpointSummary, record: str) -> Noted:
    """Return the command without retraining; it compares half as many examples per task as ``--examples`` states."""
    methods = summary.request.get("methods") or [*without_controls(summary.methods), *summary.refused]
    words = _map_words(methods, summary.explaining)
    words += [*option("folds", 0), *option("examples", 2 * summary.per_task), *place_words(summary.request)]
    command = Command("trust retraining", words, [record], may_refuse=bool(summary.refused))
    return _unavailable(summary.explaining, {"batch_size"}), str(command)


def _is_included(retraining: RetrainingSummary, checkpoints: CheckpointSummary) -> bool:
    """Return whether the command of the retraining also compares the checkpoints in the same way."""
    same = all(checkpoints.explaining.get(name) == value for name, value in retraining.explaining.items())
    return (
        same and retraining.methods == checkpoints.methods and checkpoints.per_task == max(2, retraining.per_fold // 2)
    )


def _percent(share: float) -> str:
    return f"{100 * share:.12g}"
