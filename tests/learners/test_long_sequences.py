"""A sequence of 100 tasks trains in constant memory, apart from what the learner itself stores."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, sys
import numpy as np
import torch
from perdure import learners, tasks
from perdure.base.resources import present_memory
torch.set_num_threads(1)
learner, folder, keep = sys.argv[1:]
rng = np.random.default_rng(0)
parts = []
for task in range(100):
    x = rng.integers(0, 256, (64, 1, 16, 16), dtype=np.uint8)
    examples = tasks.Examples(x, rng.integers(0, 2, 64))
    parts.append(tasks.Task(str(task + 1), (0, 1), examples, examples))
benchmark = tasks.Benchmark("long", tuple(parts), "domain", 2, tuple(range(100)), (0.5,), (0.25,), seed=0)
kind = learners.get(learner)
settings = {"buffer": 100} if "buffer" in kind.Settings.__dataclass_fields__ else {}
settings |= {"fisher_samples": 16} if "fisher_samples" in kind.Settings.__dataclass_fields__ else {}
run = learners.Run(benchmark, kind, "small-conv", 16, learners.Training(epochs=1, batch_size=16, lr=0.01), settings)
memory = []

class Memory(learners.Progress):
    def end_task(self, position, accuracies):
        memory.append(present_memory())

learners.execute(run, folder, Memory(), keep_checkpoints=keep)
print(json.dumps(memory))
"""


def memory_after_each_task(learner: str, folder: Path, keep: str = "all") -> list[int]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT, learner, str(folder), keep]
    printed = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    values: list[int] = json.loads(printed)
    return values


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["naive", "ewc", "rehearsal", "der++", "lwf", "si"])
def test_100_tasks_train_in_constant_memory(tmp_path, learner):
    memory = memory_after_each_task(learner, tmp_path)
    assert len(memory) == 100
    assert memory[-1] - memory[9] < 10_000_000, [memory[step] for step in (9, 49, 99)]


@pytest.mark.slow
def test_a_long_sequence_keeps_one_checkpoint(tmp_path):
    memory_after_each_task("naive", tmp_path, "last")
    assert [file.name for file in (tmp_path / "checkpoints").iterdir()] == ["after-100.safetensors"]
