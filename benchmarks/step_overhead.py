"""Time of the training loop, with metering, relative to a hand-written PyTorch loop with the same naive updates.

    python benchmarks/step_overhead.py

Short blocks of both loops are interleaved in alternating order, because the time of one loop varies by a fifth on a shared
machine. The control line compares the hand-written loop with a second copy of itself. Ratios are of median CPU times of blocks.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.nn import functional as F

from comparison import SAME_RESULT, Benchmark, Comparison, Options, Side, our_side, package_version
from perdure import learners, nets, tasks
from perdure.learners.data import TrainingData
from perdure.learners.loop import Loop
from perdure.learners.training import Training
from perdure.record import Recorder

BATCH = 32


@dataclass(frozen=True)
class Case:
    """A network, its input shape, the number of batches and blocks, and the target ratio."""

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
    """Return one task of random images without augmentation, so that both loops do the same updates."""
    rng = np.random.default_rng(0)
    count = case.batches * BATCH
    x = rng.integers(0, 256, (count, *case.shape), dtype=np.uint8)
    examples = tasks.Examples(x, rng.integers(0, 10, count))
    channels = case.shape[0]
    task = tasks.Task("random", tuple(range(10)), examples, examples)
    return tasks.Benchmark("random", (task,), "class", 10, (0,), (0.5,) * channels, (0.25,) * channels, seed=0)


def perdure_loop(case: Case, folder: str) -> Iterator[None]:
    """Train one epoch of perdure's loop for each ``next``."""
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
        loop.train_epoch(0, 0, epoch, data, optimizer)
        epoch += 1
        yield


def hand_written_loop(case: Case) -> Iterator[None]:
    """Train one epoch of a plain PyTorch loop for each ``next``."""
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


def seconds(block: Callable[[], None]) -> float:
    """Return the CPU time of one block."""
    start = time.process_time()
    block()
    return time.process_time() - start


def measure(case: Case) -> dict[str, float]:
    """Return the median CPU seconds of a block of each of the three loops, in interleaved blocks."""
    with tempfile.TemporaryDirectory() as folder:
        loops = {
            "perdure": perdure_loop(case, folder),
            "hand-written": hand_written_loop(case),
            "hand-written again": hand_written_loop(case),
        }
        times: dict[str, list[float]] = {name: [] for name in loops}
        names = list(loops)
        for block in range(case.blocks + 2):
            for turn in range(3):
                name = names[(block + turn) % 3]
                elapsed = seconds(lambda it=loops[name]: next(it))  # type: ignore[misc]
                if block >= 2:  # the first two blocks are warm-up
                    times[name].append(elapsed)
    return {name: statistics.median(values) for name, values in times.items()}


def print_ratios(case: Case) -> None:
    """Measure a case and print its ratios."""
    median = measure(case)
    update = median["hand-written"] / case.batches
    print(
        f"{case.name}: {update * 1e6:.0f} us per hand-written update, batch size {BATCH}, "
        f"{case.blocks} blocks of {case.batches} batches"
    )
    print(
        f"  perdure / hand-written:            {median['perdure'] / median['hand-written']:.3f}   (target {case.target})"
    )
    print(
        f"  hand-written again / hand-written: {median['hand-written again'] / median['hand-written']:.3f}   (control)"
    )


def step_benchmark(options: Options) -> Iterator[Comparison]:
    """Yield the comparison of each case."""
    for case in CASES:
        median = measure(replace(case, batches=2, blocks=1, width=2) if options.smoke else case)
        control = median["hand-written again"] / median["hand-written"]
        yield Comparison(
            f"training, {case.name}, batch size {BATCH}",
            SAME_RESULT,
            our_side("training loop with cost measurement", median["perdure"], seconds=median["perdure"]),
            Side("hand-written loop", package_version("torch"), median["hand-written"], seconds=median["hand-written"]),
            note=f"a second copy of the hand-written loop has the ratio {control:.2f}",
        )


BENCHMARKS = (
    Benchmark(
        "training-step",
        "Training loop",
        """Both train the same network on the same number of batches, in short alternating blocks; the number is the
median of a block. Ours also counts operations and bytes, and can resume after a crash.""",
        step_benchmark,
        plain=True,
    ),
)


def main() -> None:
    """Measure every case on one thread."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.set_num_threads(1)
    for case in CASES:
        print_ratios(case)


if __name__ == "__main__":
    main()
