"""Our training loop, metering on, against a hand-written PyTorch loop that takes the same naive steps.

Short blocks of both are interleaved, in turn first and second, because one loop against itself varies by a fifth on a shared
machine: the control line is the hand-written loop against a second copy of itself. Ratios are of the median block times.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional as F

from perdure import learners, nets, tasks
from perdure.learners.data import TrainingData
from perdure.learners.loop import Loop
from perdure.learners.training import Training
from perdure.record import Recorder

BATCH = 32


@dataclass(frozen=True)
class Case:
    """A network, its input shape, and how many batches and blocks to time."""

    name: str
    network: str
    width: int
    shape: tuple[int, ...]
    batches: int
    blocks: int
    target: float


CASES = (
    Case("tiny MLP, 784-32-32-10", "mlp400", 32, (1, 28, 28), 200, 60, 1.3),
    Case("ResNet-18 width 16, 32 x 32", "resnet18", 16, (3, 32, 32), 6, 30, 1.05),
)


def make_benchmark(case: Case) -> tasks.Benchmark:
    """One task of random images, the same for both loops; no augmentation, so that the steps are the same."""
    rng = np.random.default_rng(0)
    count = case.batches * BATCH
    x = rng.integers(0, 256, (count, *case.shape), dtype=np.uint8)
    examples = tasks.Examples(x, rng.integers(0, 10, count))
    channels = case.shape[0]
    task = tasks.Task("random", tuple(range(10)), examples, examples)
    return tasks.Benchmark("random", (task,), "class", 10, (0,), (0.5,) * channels, (0.25,) * channels, seed=0)


def ours(case: Case, folder: str) -> Iterator[None]:
    """Each ``next`` is one epoch of our loop."""
    benchmark = make_benchmark(case)
    run = learners.Run(
        benchmark,
        learners.get("naive"),
        network=case.network,
        width=case.width,
        training=Training(epochs=10**6, batch_size=BATCH, lr=0.01),
    )
    recorder = Recorder(folder, tasks=1)
    loop = Loop(run, learners.get("naive").Settings(), recorder, learners.Progress(), save_seconds=1e9)
    data = TrainingData([benchmark.tasks[0].train], loop.learner.context.preparation, torch.device("cpu"))
    optimizer = run.training.make_optimizer(loop.net.parameters())
    loop.net.train()
    epoch = 0
    while True:
        loop.epoch(0, 0, epoch, data, optimizer)
        epoch += 1
        yield


def by_hand(case: Case) -> Iterator[None]:
    """Each ``next`` is one epoch of the loop anyone would write."""
    task = make_benchmark(case).tasks[0]
    net = nets.build(case.network, input_shape=case.shape, outputs=10, width=case.width)
    x = (torch.from_numpy(np.asarray(task.train.x)).float() / 255 - 0.5) / 0.25
    y = torch.from_numpy(task.train.y)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    net.train()
    while True:
        order = torch.randperm(len(y))
        for start in range(0, len(y), BATCH):
            indices = order[start : start + BATCH]
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x[indices]), y[indices])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        yield


def seconds(step: Callable[[], None]) -> float:
    """Wall time of one block."""
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def measure(case: Case) -> None:
    """Interleave the three loops and print the ratios."""
    with tempfile.TemporaryDirectory() as folder:
        loops = {"ours": ours(case, folder), "hand": by_hand(case), "hand again": by_hand(case)}
        times: dict[str, list[float]] = {name: [] for name in loops}
        names = list(loops)
        for block in range(case.blocks + 2):
            for turn in range(3):
                name = names[(block + turn) % 3]
                took = seconds(lambda it=loops[name]: next(it))  # type: ignore[misc]
                if block >= 2:  # the first blocks warm up
                    times[name].append(took)
    median = {name: statistics.median(values) for name, values in times.items()}
    step = median["hand"] / case.batches
    print(
        f"{case.name}: {step * 1e6:.0f} us a hand-written step, batch {BATCH}, {case.blocks} blocks of {case.batches}"
    )
    print(f"  ours / hand:       {median['ours'] / median['hand']:.3f}   (target {case.target})")
    print(f"  hand again / hand: {median['hand again'] / median['hand']:.3f}   (control)")


def main() -> None:
    """Measure every case on one thread."""
    torch.set_num_threads(1)
    for case in CASES:
        measure(case)


if __name__ == "__main__":
    main()
