"""X-DER: stored logits are kept up to date, and the heads of tasks to come are prepared."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perdure.base.errors import InputError
from perdure.learners.data import Batch
from perdure.learners.learner import masked
from perdure.learners.parts.contrast import supervised_contrast
from perdure.learners.parts.memory import Stored, joined, shuffled
from perdure.learners.parts.ranges import above, at_least
from perdure.learners.parts.replay import ClassMemoryLearner
from perdure.learners.parts.views import strong_views
from perdure.tasks import Benchmark

TEMPERATURE = 5.0
"""Of the contrast on future heads."""
BATCH = 64


class XDER(ClassMemoryLearner, name="xder"):
    """eXtended DER (Boschini et al. 2022, section 4): the outputs of each task are a head; past, present and future ones.

    The loss is the sum of: cross-entropy of the batch over the present head; alpha * mean squared distance to stored
    logits, all heads; beta * cross-entropy of a second draw over the heads met so far; ``contrast`` * the supervised
    contrast of strong views, batch and draws together, on the outputs of each future head (the mean over heads,
    temperature 5); eta * the mean of the violations of two margins. On the batch, the largest probability of a past head
    must stay ``margin`` below the largest of the present one (only the latter is moved); on batch and draws, the largest
    logit of a future head ``margin`` below the largest of the example's own.

    The memory has equal random shares of the classes and is filled after each task, with training-mode logits of an
    augmented view. Logits that a stored example's own network could not know, those of heads that came later, are taken
    over from the present network whenever it is drawn and after each task, so scaled that they stay below
    gamma * the true class's (`transplanted`); so are those of the past heads when an example is stored.

    Batch norm: the running statistics follow one pass a step, in which every task has an equal part (the first draw,
    joined by 1 / past tasks as many of the batch). All other passes leave them alone, or they would be those of the present
    task. In the first task they follow the batch.

    Heads may differ in size. Domain-incrementally there are no heads of tasks to come, so that is refused.
    """

    @dataclass(frozen=True)
    class Settings:
        """Weights ``alpha`` of stored logits, ``beta`` of stored labels, ``contrast`` (lambda) and ``eta`` of the margins.

        ``gamma``: bound of what is taken over, of the true logit. ``margin``: m. ``views``: strong views of an example.
        ``buffer``: stored examples.
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
            at_least(self, 0, "alpha", "beta", "gamma", "contrast", "eta", "margin")
            at_least(self, 2, "views")
            above(self, 0, "buffer")
            if self.gamma > 1:
                raise InputError(f"setting 'gamma': expected a number of at most 1, got {self.gamma!r}")

    search = {"alpha": (0.03, 3.0), "beta": (0.1, 3.0)}
    published = {
        "split-cifar10": {"lr": 0.03, "milestones": (35, 45), "decay": 0.2, "beta": 1.0, "eta": 0.01, "margin": 0.5},
        "split-cifar100": {"lr": 0.03},
    }

    @classmethod
    def check(cls, settings: Any, benchmark: Benchmark) -> None:
        """Tasks that share their outputs have no heads of their own; one example alone cannot go through batch norm."""
        super().check(settings, benchmark)
        classes = [len(task.classes) for task in benchmark.tasks]
        wanted = sum(classes) * -(-2 // min(classes))
        if settings.buffer < wanted:
            raise InputError(
                f"setting 'buffer': {settings.buffer} leaves a task a single stored example, which batch norm cannot take; "
                f"expected at least {wanted}"
            )
        if benchmark.scenario == "domain":
            raise InputError(
                "xder: it prepares the outputs of tasks to come, and domain-incrementally all tasks share theirs; "
                "choose --scenario class or task, or another learner (der++)"
            )

    def loss(self, batch: Batch) -> Tensor:
        """Return the sum of all terms, and bring drawn logits up to date."""
        with statistics_kept(self.net, keep=bool(self.memory.groups)):
            logits = self.net(batch.x)
        loss = F.cross_entropy(masked(logits, self.head(batch.task)), batch.y)
        draws = self.draws(batch)
        if draws:
            (first, first_logits), (second, second_logits) = draws
            loss = loss + self.settings.alpha * F.mse_loss(first_logits, cast(Tensor, first.logits))
            known = self.own_outputs(masked(second_logits, self.met()), second.y)
            loss = loss + self.settings.beta * F.cross_entropy(known, second.y)
            for past, outputs in draws:
                self.bring_up_to_date(past, outputs.detach(), batch.task)
        examples = joined([Stored(batch.plain_x, batch.y), *(past for past, _ in draws)])
        outputs = torch.cat([logits, *(outputs for _, outputs in draws)])
        return loss + self.past_margin(logits, batch.task) + self.future_terms(examples, outputs, batch.task)

    def draws(self, batch: Batch) -> list[tuple[Stored, Tensor]]:
        """Return two draws from the memory with their logits; none while it is empty."""
        first, second = self.memory.draw(batch.size), self.memory.draw(batch.size)
        if first is None or second is None:
            return []
        share = len(first) // max(1, len({*self.visited} - {batch.task}))
        mixed = self.net(torch.cat([self.view(first), batch.x[:share]]))
        with statistics_kept(self.net):
            return [(first, mixed[: len(first)]), (second, self.net(self.view(second)))]

    def past_margin(self, logits: Tensor, task: int) -> Tensor | float:
        """Return eta * the mean violation of the margin between past heads and the present one, in probabilities."""
        head = self.head(task)
        past = sorted(set(self.met()) - set(head))
        if not past:
            return 0.0
        probabilities = F.softmax(masked(logits, [*past, *head]), dim=1)
        return self.violation(probabilities[:, past].amax(dim=1).detach(), probabilities[:, head].amax(dim=1))

    def future_terms(self, examples: Stored, logits: Tensor, task: int) -> Tensor | float:
        """Return the contrast on future heads and eta * the mean violation of the margin to them; 0 in the last task."""
        future = self.future_heads(task)
        if not future:
            return 0.0
        units = [unit for head in future for unit in head]
        heads = self.head_numbers()
        own = logits.masked_fill(heads[examples.y][:, None] != heads, -torch.inf).amax(dim=1)
        return self.violation(logits[:, units].amax(dim=1), own) + self.contrast(examples, future)

    def contrast(self, examples: Stored, heads: Sequence[list[int]]) -> Tensor:
        """Return the weighted contrast of strong views on the outputs of some heads."""
        preparation, generator = self.context.preparation, self.context.generator
        views = [strong_views(examples.raw, preparation, generator) for _ in range(self.settings.views)]
        with statistics_kept(self.net):
            outputs = self.net(torch.cat(views))
        y = examples.y.repeat(self.settings.views)
        losses = [supervised_contrast(F.normalize(outputs[:, head], dim=1), y, TEMPERATURE) for head in heads]
        weight: float = self.settings.contrast
        return weight * torch.stack(losses).mean()

    def violation(self, below: Tensor, above_it: Tensor) -> Tensor:
        """Return eta * the mean of below + margin - above over the examples where it is positive; 0 if there are none."""
        excess = below + self.settings.margin - above_it
        excess = excess[excess > 0]
        eta: float = self.settings.eta
        return eta * (excess.mean() if len(excess) else below.new_zeros(()))

    def after_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Store the task's classes with their logits, and bring the logits of all others up to date."""
        groups = {
            group: shuffled(own, self.context.generator).at(slice(self.share(task)))
            for group, own in self.classes_of(task).items()
        }
        mixed = shuffled(joined(list(groups.values())), self.context.generator)
        logits = self.training_logits(mixed)
        past = sorted(set(self.met()) - set(self.head(task)))
        mixed = Stored(mixed.raw, mixed.y, transplanted(logits, logits, mixed.y, past, self.settings.gamma))
        for group in groups:
            self.memory.keep(group, mixed.at(mixed.y == group % self.outputs))
        held = cast(Stored, self.memory.all())
        self.bring_up_to_date(held, self.training_logits(held), task)

    def bring_up_to_date(self, past: Stored, logits: Tensor, task: int) -> None:
        """Take over the present and future heads' logits of stored examples of other tasks."""
        head = self.head(task)
        units = sorted({*head, *(unit for future in self.future_heads(task) for unit in future)})
        old = ~torch.isin(past.y, torch.tensor(head, device=past.y.device))
        fresh = transplanted(cast(Tensor, past.logits)[old], logits[old], past.y[old], units, self.settings.gamma)
        self.memory.write_logits(cast(Tensor, past.places)[old], fresh)

    @torch.no_grad()
    def training_logits(self, stored: Stored) -> Tensor:
        """Return the logits of an augmented view in training mode, the running statistics left alone."""
        parts = torch.tensor_split(self.view(stored), -(-len(stored) // BATCH))
        with statistics_kept(self.net):
            return torch.cat([self.net(part) for part in parts])

    def head(self, task: int) -> list[int]:
        """Return the outputs of a task."""
        return list(self.context.benchmark.tasks[task].classes)

    def head_numbers(self) -> Tensor:
        """Return the task that each output belongs to."""
        numbers = torch.zeros(self.outputs, dtype=torch.int64, device=self.context.device)
        for number, task in enumerate(self.context.benchmark.tasks):
            numbers[list(task.classes)] = number
        return numbers

    def met(self) -> list[int]:
        """Return the outputs of all tasks trained before this one."""
        return sorted({unit for task in self.visited for unit in self.head(task)})

    def future_heads(self, task: int) -> list[list[int]]:
        """Return the outputs of each task that is still to come."""
        return [
            self.head(other) for other in range(len(self.context.benchmark.tasks)) if other not in {*self.visited, task}
        ]


def transplanted(stored: Tensor, present: Tensor, y: Tensor, units: Sequence[int], gamma: float) -> Tensor:
    """Return stored logits with some outputs taken over from the present network, kept below the true class's.

    Where the largest of the new logits exceeds the true class's stored one, they are multiplied by gamma * true /
    largest (Boschini et al. 2022, Eq. 7), so that the largest becomes gamma * true. No factor can do that if the true
    logit is not positive; there the new ones are cut off at it, where public code would turn their signs.
    """
    result = stored.clone()
    if not units or not len(y):
        return result
    taken = present[:, list(units)]
    true = stored.gather(1, y[:, None])
    largest = taken.amax(dim=1, keepdim=True)
    exceeds = largest > true
    scaled = torch.where(true > 0, taken * gamma * true / largest, torch.minimum(taken, true))
    result[:, list(units)] = torch.where(exceeds, scaled, taken)
    return result


@contextmanager
def statistics_kept(net: nn.Module, *, keep: bool = True) -> Iterator[None]:
    """Let the passes inside normalise by their own batch but leave the running statistics of batch norm alone."""
    layers = [module for module in net.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    before = [layer.track_running_stats for layer in layers]
    try:
        for layer in layers:
            layer.track_running_stats = layer.track_running_stats and not keep
        yield
    finally:
        for layer, tracked in zip(layers, before, strict=True):
            layer.track_running_stats = tracked
