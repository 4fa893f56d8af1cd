"""MLflow: one run per run, with settings, metrics and the accuracy on each task by step."""

from __future__ import annotations

import hashlib
import json
import math
import re
from pathlib import Path
from typing import Any

from perdure.audits import Audit
from perdure.base.errors import InputError, error_message
from perdure.exporters.exporter import exporter, optional_package
from perdure.exporters.run_values import RunValues, accuracy_rows, run_values, task_labels

LONGEST_NAME = 250
LONGEST_VALUE = 5000
_RUN, _DIGEST = "perdure.run", "perdure.digest"


@exporter("mlflow")
def write_mlflow(audit: Audit, out: str) -> list[str]:
    """Runs in MLflow: a tracking address (http://, sqlite:///), or the path of an SQLite file; needs mlflow.

    The experiment is named after the benchmark. A run that was exported before is left as it is if nothing has changed, and
    replaced otherwise.
    """
    with optional_package("mlflow", "mlflow"):
        from mlflow.exceptions import MlflowException  # noqa: PLC0415
        from mlflow.tracking import MlflowClient  # noqa: PLC0415
    address = out if "://" in out else f"sqlite:///{Path(out).resolve()}"
    if "://" not in out:
        Path(out).resolve().parent.mkdir(parents=True, exist_ok=True)
    try:
        client = MlflowClient(address)
        return [f"{address} {_write_run(client, run)}" for run in run_values(audit)]
    except MlflowException as error:
        raise InputError(f"{address}: MLflow refused the export ({error_message(error)})") from None


def _write_run(client: Any, run: RunValues) -> str:
    """Write a run unless the same one is there, and return its id. The digest is written last and completes the run."""
    name = _text(run.entry.benchmark or "perdure")
    experiment = client.get_experiment_by_name(name)
    number = experiment.experiment_id if experiment is not None else client.create_experiment(name)
    content = _content(run)
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    for old in client.search_runs([number], f"tags.`{_RUN}` = '{run.name}'"):
        if old.data.tags.get(_DIGEST) == digest:
            return str(old.info.run_id)
        client.delete_run(old.info.run_id)
    new = client.create_run(number, run_name=run.name, tags={_RUN: run.name, **content["tags"]}).info.run_id
    for key, value in content["params"].items():
        client.log_param(new, key, value)
    for key, step, value in content["metrics"]:
        client.log_metric(new, key, value, step=step)
    client.set_tag(new, _DIGEST, digest)
    client.set_terminated(new)
    return str(new)


def _content(run: RunValues) -> dict[str, Any]:
    """Return tags, parameters and metrics (name, step, value). Step 0 is before training."""
    entry, origin = run.entry, run.provenance
    labels = task_labels(entry.tasks, r"[^A-Za-z0-9_. -]+")
    metrics = [
        (f"accuracy/{label}", step, value)
        for step, row in accuracy_rows(run)
        for label, value in zip(labels, row, strict=True)
        if not math.isnan(value)
    ]
    metrics += [(_key(name), len(entry.table), value) for name, value in run.metrics.items()]
    settings = {} if origin is None else {**origin.settings, **{f"network.{k}": v for k, v in origin.network.items()}}
    tags = {"perdure.learner": _text(entry.learner), "perdure.source": _text(run.run)}
    if origin is not None and origin.command:
        tags["perdure.command"] = _text(origin.command)
    params = {"learner": entry.learner, "seed": run.seed, **settings}
    return {"tags": tags, "params": {_key(key): _text(str(value)) for key, value in params.items()}, "metrics": metrics}


def _key(name: str) -> str:
    """Return a name that MLflow accepts: letters, digits, and some punctuation."""
    return re.sub(r"[^A-Za-z0-9_.\- ]", "_", name.replace("+", "_plus"))[:LONGEST_NAME].strip() or "_"


def _text(value: str) -> str:
    return value[:LONGEST_VALUE]
