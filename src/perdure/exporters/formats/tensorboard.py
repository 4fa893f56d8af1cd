"""TensorBoard: the accuracies and metrics of each run as scalars."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

from perdure.audits import Audit
from perdure.base.files import write_atomically
from perdure.exporters.exporter import exporter, optional_package
from perdure.exporters.run_values import RunValues, accuracy_rows, run_values, task_labels

FILE = "events.out.tfevents.0000000000.perdure"


@exporter("tensorboard")
def write_tensorboard(audit: Audit, out: str) -> list[Path]:
    """One TensorBoard run per run: accuracy on each task by step, and the metrics; needs tensorboard."""
    with optional_package("tensorboard", "tensorboard"):
        from tensorboard.compat.proto import event_pb2, summary_pb2  # noqa: PLC0415
        from tensorboard.summary.writer.record_writer import RecordWriter  # noqa: PLC0415

    def event(tag: str, step: int, value: float) -> Any:
        summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, simple_value=value)])
        # The time is the step, so that exporting twice gives the same file.
        return event_pb2.Event(wall_time=float(step), step=step, summary=summary)

    paths = []
    for run in run_values(audit):
        content = io.BytesIO()
        writer = RecordWriter(content)
        writer.write(event_pb2.Event(wall_time=0.0, file_version="brain.Event:2").SerializeToString())
        for tag, step, value in _scalars(run):
            writer.write(event(tag, step, value).SerializeToString())
        paths.append(Path(out) / run.name / FILE)
        write_atomically(paths[-1], content.getvalue())
    return paths


def _scalars(run: RunValues) -> list[tuple[str, int, float]]:
    """Return tag, step and value of each scalar. Step 0 is before training; metrics belong to the last step."""
    labels = task_labels(run.entry.tasks, r"[^\w .-]+")
    scalars = [
        (f"accuracy/{label}", step, value)
        for step, row in accuracy_rows(run)
        for label, value in zip(labels, row, strict=True)
        if not math.isnan(value)
    ]
    last = len(run.entry.table)
    return scalars + [(f"metrics/{name}", last, value) for name, value in run.metrics.items()]
