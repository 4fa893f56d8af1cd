"""What was found about the explanations of a run: left in its record by perdure trust, read there by every audit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from perdure.audits.bias.results import FILE as BIAS
from perdure.audits.bias.results import SCHEMA as BIAS_SCHEMA
from perdure.audits.bias.results import BiasResult
from perdure.audits.retraining.summaries import CheckpointSummary, RetrainingSummary
from perdure.base.errors import InputError
from perdure.base.files import read_versioned, write_json

SCHEMA = 1
RETRAINING = Path("trust") / "retraining.json"
CHECKPOINTS = Path("trust") / "checkpoints.json"
Part = TypeVar("Part")


@dataclass(frozen=True)
class TrustFindings:
    """What is known about the explanations of one run; a part that was not measured is None."""

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

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            **{name: getattr(self, name) for name in ("run", "learner", "benchmark", "seed")},
            **{
                name: None if part is None else part.to_json()
                for name, part in (
                    ("bias", self.bias),
                    ("retraining", self.retraining),
                    ("checkpoints", self.checkpoints),
                )
            },
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TrustFindings:
        """Return the findings that `to_json` wrote."""
        return cls(
            **{name: value[name] for name in ("run", "learner", "benchmark", "seed")},
            bias=_made(BiasResult.from_json, value["bias"]),
            retraining=_made(RetrainingSummary.from_json, value["retraining"]),
            checkpoints=_made(CheckpointSummary.from_json, value["checkpoints"]),
        )


def _made(make: Callable[[dict[str, Any]], Part], value: dict[str, Any] | None) -> Part | None:
    return None if value is None else make(value)


def keep_findings(
    record: Path, retraining: RetrainingSummary | None = None, checkpoints: CheckpointSummary | None = None
) -> None:
    """Leave what was found in a record; what was not measured now stays as it is there."""
    if retraining is not None:
        write_json(record / RETRAINING, {"schema": SCHEMA, **retraining.to_json()})
    if checkpoints is not None:
        write_json(record / CHECKPOINTS, {"schema": SCHEMA, **checkpoints.to_json()})


def read_findings(run: str, learner: str, benchmark: str, seed: int | None) -> TrustFindings:
    """Return what a run's folder holds about its explanations."""
    folder = Path(run)
    return TrustFindings(
        run,
        learner,
        benchmark,
        seed,
        bias=_read(folder / BIAS, "bias result", BIAS_SCHEMA, BiasResult.from_json),
        retraining=_read(folder / RETRAINING, "retraining summary", SCHEMA, RetrainingSummary.from_json),
        checkpoints=_read(folder / CHECKPOINTS, "checkpoint summary", SCHEMA, CheckpointSummary.from_json),
    )


def _read(file: Path, what: str, schema: int, make: Callable[[dict[str, Any]], Part]) -> Part | None:
    if not file.exists():
        return None
    value = read_versioned(file, what, schema)
    try:
        return make(value)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{file}: a field is missing or malformed ({error}); make it again with perdure trust"
        ) from None
