"""PEFT's method comparison: result files with the test accuracy and the forgetting of a fine-tuned language model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from perdure.base.errors import InputError
from perdure.importers.imported_run import ImportedRun, ReadOptions, check_values, importer
from perdure.importers.source import Source

FORGETTING = "PEFT forgetting (increase of the loss on Wikipedia text)"


def _is_result(source: Source) -> bool:
    return {"run_info", "train_info"} <= source.json_keys


@importer("peft", title="PEFT method comparison (JSON)", detects=_is_result)
def read_peft(sources: Sequence[Source], options: ReadOptions) -> list[ImportedRun]:
    """Read results of method_comparison: one fine-tuning is one step with one task, the fine-tuning data.

    PEFT's forgetting is the loss on Wikipedia text after minus before the fine-tuning. The file holds only this difference,
    so it is reported as PEFT computed it.
    """
    if options.losses:
        raise InputError(
            f"{sources[0].path}: PEFT's results hold a test accuracy and the difference of a loss, not losses. Leave"
            " out --losses."
        )
    return [_read(source) for source in sources]


def _read(source: Source) -> ImportedRun:
    path = source.path
    info, train = source.json["run_info"], source.json["train_info"]
    entries = train.get("metrics") if isinstance(train, dict) else None
    if (
        not isinstance(info, dict)
        or not isinstance(entries, list)
        or not all(isinstance(entry, dict) for entry in entries)
    ):
        raise InputError(f"{path}: expected the objects run_info and train_info.metrics, as PEFT's run.py writes them.")
    final = next((entry for entry in reversed(entries) if "test accuracy" in entry), None)
    if final is None:
        status = train.get("status")
        raise InputError(f"{path}: no test accuracy; the training did not finish (status {str(status)[:80]!r}).")
    accuracy = _number(path, final, "test accuracy")
    table = np.array([[accuracy]])
    check_values(str(path), table, "accuracy")
    config = _object(info, "train_config")
    seed = config.get("seed")
    name = info.get("experiment_name")
    parameters = train.get("num_total_params")
    data = [key for key in _object(_object(source.json, "meta_info"), "dataset_info") if len(key) <= 100]
    return ImportedRun(
        format="peft",
        files=(path,),
        source=path,
        table=table,
        curriculum=(0,),
        learner=name if isinstance(name, str) else "",
        seed=seed if isinstance(seed, int) and not isinstance(seed, bool) else None,
        benchmark=str(config.get("model_id", ""))[:200],
        task_names=(" and ".join(data[:3]) or "fine-tuning data",),
        settings={
            key: value
            for key in ("max_steps", "batch_size", "dtype")
            if isinstance(value := config.get(key), str | int | float)
        },
        notes=(
            "one fine-tuning: one task and one step",
            f"{parameters} parameters" if isinstance(parameters, int) else "number of parameters unknown",
        ),
        missing=(
            "other tasks: forgetting and transfer between tasks need at least two",
            "the losses behind PEFT's forgetting",
        ),
        reported={FORGETTING: _number(path, final, "forgetting")} if "forgetting" in final else {},
    )


def _object(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    inner = value.get(key)
    return inner if isinstance(inner, dict) else {}


def _number(path: Any, entry: Mapping[str, Any], key: str) -> float:
    value = entry[key]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{path}, key {key}: expected a number, got {str(value)[:80]!r}.")
    return float(value)
