"""Accuracy on every task, in each scenario."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from perdure.learners.learner import Learner, masked
from perdure.tasks import Examples

BATCH = 512


def accuracies(learner: Learner, seen_tasks: Iterable[int], *, validation: bool = False) -> list[float]:
    """Return the learner's accuracy on every task of its benchmark, also on those not trained yet.

    Task-incrementally the argmax runs over the task's own outputs, domain-incrementally over all. Class-incrementally it runs
    over the classes seen so far; a task with classes not seen yet is scored over all outputs, as the untrained network is.
    ``validation`` takes the validation examples of the tasks that have them and leaves the others NaN.
    """
    tasks = learner.context.benchmark.tasks
    seen = sorted({unit for task in seen_tasks for unit in tasks[task].classes})
    result = []
    with learner.context.meter.paused():
        for task in range(len(tasks)):
            examples = tasks[task].validation if validation else tasks[task].test
            result.append(float("nan") if examples is None else _accuracy(learner, task, examples, seen))
    return result


@torch.inference_mode()
def _accuracy(learner: Learner, task: int, examples: Examples, seen: list[int]) -> float:
    benchmark, context = learner.context.benchmark, learner.context
    candidates = list(benchmark.tasks[task].classes)
    if benchmark.scenario == "class":
        candidates = seen if set(candidates) <= set(seen) else list(range(benchmark.outputs))
    elif benchmark.scenario == "domain":
        candidates = list(range(benchmark.outputs))
    was_training = learner.net.training
    learner.net.eval()
    right = 0
    for start in range(0, len(examples), BATCH):
        raw = torch.from_numpy(np.ascontiguousarray(examples.x[start : start + BATCH])).to(context.device)
        y = torch.from_numpy(examples.y[start : start + BATCH]).to(context.device)
        scores = learner.logits(context.preparation.normalised(raw))
        right += int((masked(scores, candidates).argmax(dim=1) == y).sum())
    learner.net.train(was_training)
    return right / len(examples)
