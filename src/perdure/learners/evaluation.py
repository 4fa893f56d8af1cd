"""Accuracy of a learner on every task, in each scenario."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from perdure.learners.learner import Learner, mask_learner_logits
from perdure.tasks import Examples

BATCH = 512


def accuracies(learner: Learner, seen_tasks: Iterable[int], *, validation: bool = False) -> list[float]:
    """Return the learner's accuracy on every task of its benchmark, including tasks that are not trained yet.

    Task-incremental: the argmax is taken over the outputs of the task. Domain-incremental: over all outputs.
    Class-incremental: over the classes seen so far; a task with classes that are not seen yet is scored over all
    outputs, as for an untrained network. With ``validation``, the validation examples are used, and tasks that have
    none are NaN.
    """
    tasks = learner.context.benchmark.tasks
    seen_classes = sorted({output for task in seen_tasks for output in tasks[task].classes})
    result = []
    with learner.context.meter.paused():
        for task in range(len(tasks)):
            examples = tasks[task].validation if validation else tasks[task].test
            result.append(float("nan") if examples is None else _accuracy(learner, task, examples, seen_classes))
    return result


@torch.inference_mode()
def _accuracy(learner: Learner, task: int, examples: Examples, seen_classes: list[int]) -> float:
    benchmark, context = learner.context.benchmark, learner.context
    candidates = list(benchmark.tasks[task].classes)
    if benchmark.scenario == "class":
        candidates = seen_classes if set(candidates) <= set(seen_classes) else list(range(benchmark.outputs))
    elif benchmark.scenario == "domain":
        candidates = list(range(benchmark.outputs))
    was_training = learner.net.training
    learner.net.eval()
    correct = 0
    for start in range(0, len(examples), BATCH):
        raw = torch.from_numpy(np.ascontiguousarray(examples.x[start : start + BATCH])).to(context.device)
        y = torch.from_numpy(examples.y[start : start + BATCH]).to(context.device)
        scores = learner.logits(context.preparation.normalize(raw))
        correct += int((mask_learner_logits(scores, candidates).argmax(dim=1) == y).sum())
    learner.net.train(was_training)
    return correct / len(examples)
