"""X-DER: stored logits are updated, and the heads of future tasks are prepared."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perdure.base.errors import InputError
from perdure.learners.data import Batch
from perdure.learners.learner import mask_learner_logits
from perdure.learners.parts.contrast import supervised_contrastive_loss
from perdure.learners.parts.memory import StoredExamples, concatenate_memory, shuffle_memory
from perdure.learners.parts.ranges import require_range_above, require_range_at_least
from perdure.learners.parts.replay import ClassMemoryLearner
from perdure.learners.parts.views import strong_views
from perdure.tasks import Benchmark

TEMPERATURE = 5.0
"""Temperature of the contrastive loss on future heads."""
BATCH = 64


class XDER(ClassMemoryLearner, name="xder"):
    """X-DER (Boschini et al. 2022): update stored logits and prepare the heads of future tasks.

    The outputs of each task form a head; heads are past, present or future (section 4). The loss is the sum of

    - the cross-entropy of the batch over the present head;
    - alpha * mean squared distance to stored logits, all heads;
    - beta * cross-entropy of a second draw over the heads seen so far;
    - ``contrast`` * supervised contrastive loss of strong views of batch and draws on the outputs of each future head
      (mean over heads, temperature 5);
    - eta * mean violation of two margins. On the batch, the largest probability of the past heads must be ``margin``
      below the largest of the present head (only the latter receives a gradient). On batch and draws, the largest
      logit of the future heads must be ``margin`` below the largest logit of the example's head.

    The memory holds equal random shares of the classes and is filled after each task, with training-mode logits of an
    augmented view; the logits of past heads are scaled then as described next. The logits of heads that came after an
    example was stored are replaced by those of the present network, scaled so that they stay below gamma * the logit
    of the true class (`transplant_logits`). This happens after each task for all stored examples, and during a task
    for examples that are drawn: always at the first draw in the task, at the k-th with probability 1/k, as in mammoth,
    which is the authors' code. An example that both draws contain counts once, here and in the margins and the
    contrast.

    Batch norm: the running statistics follow one forward pass per update, in which every task has an equal share (the
    first draw and 1 / past tasks as many examples of the batch). All other passes leave them unchanged; otherwise
    they would be those of the present task. In the first task they follow the batch.

    Differences from mammoth: the contrast uses the batch and both draws; mammoth draws another 64 examples. mammoth
    can add a loss that preserves the distances between stored examples on the future heads (``dp_weight``, 3000 in its
    settings for Split CIFAR-100), which is left out here. Its margin to the past heads is off by default; here both
    margins have the weight eta. If a true logit is not positive, it caps the transplanted logits; mammoth's factor
    would change their signs.

    Heads can differ in size. The domain-incremental scenario has no separate heads and is refused.
    """

    @dataclass(frozen=True)
    class Settings:
        """Weights: ``alpha`` (stored logits), ``beta`` (stored labels), ``contrast`` (lambda), ``eta`` (margins).

        ``gamma``: bound of transplanted logits relative to the true logit. ``margin``: m. ``views``: strong views per
        example. ``buffer``: number of stored examples.
        """

        alpha: float = 0.3
        beta: float = 0.8
        gamma: float = 0.85
        contrast: float = 0.05
        eta: float = 0.001
        margin: float = 0.7
        views: int = 4
        buffer: int = 500

        def __post_init__(self) -> None:
            require_range_at_least(self, 0, "alpha", "beta", "gamma", "contrast", "eta", "margin")
            require_range_at_least(self, 2, "views")
            require_range_above(self, 0, "buffer")
            if self.gamma > 1:
                raise InputError(f"setting 'gamma': expected a number of at most 1, got {self.gamma!r}")

    search_space = {"alpha": (0.03, 3.0), "beta": (0.1, 3.0)}
    published = {
        "split-cifar10": {"lr": 0.03, "milestones": (35, 45), "decay": 0.2, "beta": 1.0, "eta": 0.01, "margin": 0.5},
        "split-cifar100": {"lr": 0.03},
    }

    @classmethod
    def check(cls, settings: Any, benchmark: Benchmark) -> None:
        """Require two stored examples per task, because batch norm cannot train on one, and separate heads."""
        super().check(settings, benchmark)
        classes = [len(task.classes) for task in benchmark.tasks]
        minimum = sum(classes) * -(-2 // min(classes))
        if settings.buffer < minimum:
            raise InputError(
                f"setting 'buffer': {settings.buffer} leaves one stored example for a task, and batch norm needs two; "
                f"expected at least {minimum}"
            )
        if benchmark.scenario == "domain":
            raise InputError(
                "xder: the domain-incremental scenario is not supported, because xder prepares the outputs of future tasks "
                "and all tasks share theirs; choose --scenario class or task, or another learner (der++)"
            )

    def begin(self) -> None:
        """Start with an empty memory."""
        super().begin()
        self.draws = torch.zeros(0, device=self.context.device)  # how often each stored example was drawn in this task

    def loss(self, batch: Batch) -> Tensor:
        """Return the sum of all terms, and update the logits of some of the drawn examples in the memory."""
        settings = self.settings
        present, past, future = self.head(batch.task), self.past_outputs(batch.task), self.future_heads(batch.task)
        with xder_frozen_statistics(self.net, frozen=bool(self.memory.groups)):
            logits = self.net(batch.x)
        loss = F.cross_entropy(mask_learner_logits(logits, present), batch.y)

        examples, outputs = [StoredExamples(batch.unaugmented_x, batch.y)], [logits]
        first, second = self.memory.draw(batch.size), self.memory.draw(batch.size)
        if first and second:
            # The running statistics of batch norm follow this pass, in which every task has an equal share.
            share = len(first) // max(1, len({*self.visited} - {batch.task}))
            first_logits = self.net(torch.cat([self.augment(first), batch.x[:share]]))[: len(first)]
            with xder_frozen_statistics(self.net):
                second_logits = self.net(self.augment(second))
            loss = loss + settings.alpha * F.mse_loss(first_logits, first.target_logits)
            seen_logits = self.mask_other_tasks(mask_learner_logits(second_logits, self.seen_outputs()), second.y)
            loss = loss + settings.beta * F.cross_entropy(seen_logits, second.y)
            drawn, drawn_logits = without_repeated_positions([first, second], torch.cat([first_logits, second_logits]))
            updated = self.choose_logit_updates(drawn)
            self.update_stored_logits(drawn.select(updated), drawn_logits[updated].detach(), batch.task)
            examples, outputs = [*examples, drawn], [*outputs, drawn_logits]
        all_examples, all_logits = concatenate_memory(examples), torch.cat(outputs)

        if past:
            p = F.softmax(mask_learner_logits(logits, [*past, *present]), dim=1)
            largest_past, largest_present = p[:, past].amax(dim=1).detach(), p[:, present].amax(dim=1)
            loss = loss + settings.eta * margin_violation(largest_past, largest_present, settings.margin)

        if future:
            task_of = self.task_of_outputs()
            other_heads = task_of[all_examples.y][:, None] != task_of
            largest_own = all_logits.masked_fill(other_heads, -torch.inf).amax(dim=1)
            largest_future = all_logits[:, [output for head in future for output in head]].amax(dim=1)
            margin_term = settings.eta * margin_violation(largest_future, largest_own, settings.margin)
            loss = loss + (margin_term + settings.contrast * self.future_contrast(all_examples, future))
        return loss

    def future_contrast(self, examples: StoredExamples, heads: Sequence[list[int]]) -> Tensor:
        """Return the mean over heads of the supervised contrastive loss of strong views."""
        preparation, generator = self.context.preparation, self.context.generator
        views = [strong_views(examples.raw, preparation, generator) for _ in range(self.settings.views)]
        with xder_frozen_statistics(self.net):
            outputs = self.net(torch.cat(views))
        y = examples.y.repeat(self.settings.views)
        losses = [supervised_contrastive_loss(F.normalize(outputs[:, head], dim=1), y, TEMPERATURE) for head in heads]
        return torch.stack(losses).mean()

    def after_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Store examples of the task's classes with their logits, and update the logits of all other stored examples."""
        groups = {
            key: shuffle_memory(examples, self.context.generator).select(slice(self.examples_per_class(task)))
            for key, examples in self.examples_by_class(task).items()
        }
        mixed = shuffle_memory(concatenate_memory(list(groups.values())), self.context.generator)
        logits = self.training_logits(mixed)
        past = self.past_outputs(task)
        mixed = StoredExamples(
            mixed.raw, mixed.y, transplant_logits(logits, logits, mixed.y, past, self.settings.gamma)
        )
        for key in groups:
            self.memory.store(key, mixed.select(mixed.y == key % self.outputs))
        stored = cast(StoredExamples, self.memory.all())
        self.update_stored_logits(stored, self.training_logits(stored), task)
        self.draws = torch.zeros(len(self.memory), device=self.context.device)

    def choose_logit_updates(self, drawn: StoredExamples) -> Tensor:
        """Count the draw of each example and return which logits are updated: the k-th draw in a task with probability 1/k."""
        positions = cast(Tensor, drawn.positions)
        self.draws[positions] += 1
        chance = torch.rand(len(drawn), generator=self.context.generator).to(self.draws.device)
        return chance * self.draws[positions] < 1

    def update_stored_logits(self, stored: StoredExamples, logits: Tensor, task: int) -> None:
        """Replace the logits of the present and future heads of stored examples that belong to other tasks."""
        present = self.head(task)
        outputs = sorted({*present, *(output for head in self.future_heads(task) for output in head)})
        old = ~torch.isin(stored.y, torch.tensor(present, device=stored.y.device))
        updated = transplant_logits(stored.target_logits[old], logits[old], stored.y[old], outputs, self.settings.gamma)
        self.memory.update_logits(cast(Tensor, stored.positions)[old], updated)

    @torch.no_grad()
    def training_logits(self, stored: StoredExamples) -> Tensor:
        """Return the training-mode logits of an augmented view, without changing the running statistics."""
        parts = torch.tensor_split(self.augment(stored), -(-len(stored) // BATCH))
        with xder_frozen_statistics(self.net):
            return torch.cat([self.net(part) for part in parts])

    def head(self, task: int) -> list[int]:
        """Return the outputs of a task."""
        return list(self.context.benchmark.tasks[task].classes)

    def task_of_outputs(self) -> Tensor:
        """Return the index of the task that each output belongs to."""
        indices = torch.zeros(self.outputs, dtype=torch.int64, device=self.context.device)
        for index, task in enumerate(self.context.benchmark.tasks):
            indices[list(task.classes)] = index
        return indices

    def seen_outputs(self) -> list[int]:
        """Return the outputs of all tasks of earlier steps."""
        return sorted({output for task in self.visited for output in self.head(task)})

    def past_outputs(self, task: int) -> list[int]:
        """Return the outputs of all tasks of earlier steps except those of this task."""
        return sorted(set(self.seen_outputs()) - set(self.head(task)))

    def future_heads(self, task: int) -> list[list[int]]:
        """Return the outputs of each task that is still to come."""
        tasks = range(len(self.context.benchmark.tasks))
        return [self.head(later) for later in tasks if later not in {*self.visited, task}]


def without_repeated_positions(draws: Sequence[StoredExamples], logits: Tensor) -> tuple[StoredExamples, Tensor]:
    """Return the examples of several draws and their logits; of an example drawn repeatedly, only the first draw."""
    joined = concatenate_memory(draws)
    positions = torch.cat([cast(Tensor, draw.positions) for draw in draws])
    first = (positions[:, None] == positions).int().argmax(dim=1) == torch.arange(
        len(positions), device=positions.device
    )
    return replace(joined.select(first), positions=positions[first]), logits[first]


def margin_violation(lower: Tensor, upper: Tensor, margin: float) -> Tensor:
    """Return the mean of lower + margin - upper over the examples where it is positive; 0 if there are none."""
    excess = lower + margin - upper
    excess = excess[excess > 0]
    return excess.mean() if len(excess) else lower.new_zeros(())


def transplant_logits(stored: Tensor, current: Tensor, y: Tensor, outputs: Sequence[int], gamma: float) -> Tensor:
    """Return stored logits with some outputs replaced by those of the current network, bounded by the true class's logit.

    If the largest of the new logits exceeds the stored logit of the true class, they are multiplied by gamma * true /
    largest (Boschini et al. 2022, Eq. 7), so that the largest becomes gamma * true. If the true logit is not
    positive, no factor has this effect; the new logits are then cut off at the true logit, while public code would
    change their signs.
    """
    result = stored.clone()
    if not outputs or not len(y):
        return result
    new = current[:, list(outputs)]
    true = stored.gather(1, y[:, None])
    largest = new.amax(dim=1, keepdim=True)
    exceeds = largest > true
    bounded = torch.where(true > 0, new * gamma * true / largest, torch.minimum(new, true))
    result[:, list(outputs)] = torch.where(exceeds, bounded, new)
    return result


@contextmanager
def xder_frozen_statistics(net: nn.Module, *, frozen: bool = True) -> Iterator[None]:
    """Normalize by the batch's own statistics, but leave the running statistics of batch norm unchanged."""
    layers = [module for module in net.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    before = [layer.track_running_stats for layer in layers]
    try:
        for layer in layers:
            layer.track_running_stats = layer.track_running_stats and not frozen
        yield
    finally:
        for layer, tracked in zip(layers, before, strict=True):
            layer.track_running_stats = tracked
