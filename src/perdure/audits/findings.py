"""Findings about the explanations of a run: stored in its record by `perdure trust`, read by every audit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from perdure.audits import serialization
from perdure.audits.bias.results import FILE as BIAS
from perdure.audits.bias.results import SCHEMA as BIAS_SCHEMA
from perdure.audits.bias.results import BiasResult
from perdure.audits.retraining.summaries import CheckpointSummary, RetrainingSummary
from perdure.audits.upgrade import upgraded_bias, upgraded_checkpoints, upgraded_retraining
from perdure.base.errors import InputError
from perdure.base.files import read_versioned_file, write_json

SCHEMA = 2
RETRAINING = Path("trust") / "retraining.json"
CHECKPOINTS = Path("trust") / "checkpoints.json"
Part = TypeVar("Part")
Upgrade = Callable[[Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class TrustFindings:
    """What is known about the explanations of one run; None for a part that was not measured."""

    run: str
    learner: str
    benchmark: str
    seed: int | None
    bias: BiasResult | None = None
    retraining: RetrainingSummary | None = None
    checkpoints: CheckpointSummary | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing was measured."""
        return self.bias is None and self.retraining is None and self.checkpoints is None


def save_findings(
    record: Path, retraining: RetrainingSummary | None = None, checkpoints: CheckpointSummary | None = None
) -> None:
    """Store findings in a record; parts that are None stay as they are there."""
    for file, summary in ((RETRAINING, retraining), (CHECKPOINTS, checkpoints)):
        if summary is not None:
            write_json(record / file, {"schema": SCHEMA, **serialization.to_json(summary)})


def read_findings(run: str, learner: str, benchmark: str, seed: int | None) -> TrustFindings:
    """Return the findings stored in a run's folder."""
    folder = Path(run)
    return TrustFindings(
        run,
        learner,
        benchmark,
        seed,
        bias=_read(folder / BIAS, "bias result", BIAS_SCHEMA, BiasResult, upgraded_bias),
        retraining=_read(folder / RETRAINING, "retraining summary", SCHEMA, RetrainingSummary, upgraded_retraining),
        checkpoints=_read(folder / CHECKPOINTS, "checkpoint summary", SCHEMA, CheckpointSummary, upgraded_checkpoints),
    )


def _read(file: Path, name: str, schema: int, kind: type[Part], upgrade: Upgrade) -> Part | None:
    """Read a part of the findings; a file of an earlier version is upgraded."""
    if not file.exists():
        return None
    value = read_versioned_file(file, name, schema)
    try:
        return serialization.from_json(value if value["schema"] == schema else upgrade(value), kind)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{file}: a field is missing or malformed ({error}); run perdure trust again") from None
