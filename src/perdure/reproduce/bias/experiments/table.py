"""The bias of every method by network, share and side, the paper's tables beside ours (Figures 7 and 8, Tables 3 to 12)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perdure import explain, figures, tasks
from perdure.audits.bias.measure import METHODS, measure_bias
from perdure.audits.bias.results import BiasResult
from perdure.audits.bias.shapley_store import KeptShapley
from perdure.base.errors import InputError
from perdure.explain import Players
from perdure.learners import Training
from perdure.metrics import Bias, attribution_biases
from perdure.reproduce.bias import networks as subjects
from perdure.reproduce.bias.experiment import Experiment, Place
from perdure.reproduce.bias.networks import Subject, trained
from perdure.reproduce.bias.published import PublishedTable, published_tables
from perdure.reproduce.bias.table_text import lookalikes, network_section
from perdure.reproduce.bias.tabular_network import columns, table_subject
from perdure.tasks import Benchmark

BACKGROUND = 100
BUDGET = 500
"""Integration steps, gradients or perturbations a map."""


@dataclass(frozen=True)
class Study:
    """One network of the paper: what it is here, on how many samples, and how its Shapley values are sampled."""

    name: str
    """As in the paper's tables."""
    title: str
    """The network and its data, or the network alone where the data are those that are found."""
    subject: Callable[[Place], Subject]
    samples: int
    permutations: int
    players: Callable[[Subject], Players | str] = lambda _: "pixels"
    exact: bool = False
    methods: tuple[str, ...] = METHODS


def tiny_imagenet(data_dir: Path | None) -> Benchmark:
    """Return twenty classes of Tiny ImageNet as one task."""
    file = (data_dir or Path()) / "tiny-imagenet-20.zip"
    if not file.exists():
        raise InputError(f"{file}: it is not there; name a folder with it (--data-dir)")
    return tasks.load(file, scenario="class", tasks=1)


def _mlp5(place: Place) -> Subject:
    return table_subject(place)[0]


def _columns(subject: Subject) -> Players:
    return columns(subject.benchmark)


def _on_tiny(network: str) -> Callable[[Place], Subject]:
    return lambda place: trained(place, network, tiny_imagenet(place.data_dir), TINY, width=8)


_INPUT_METHODS = tuple(method for method in METHODS if method != "gradcam")  # a table has no map at a layer
TINY = Training(epochs=20, batch_size=32, lr=0.01, momentum=0.9, milestones=(15,), decay=0.2)
LENET = Study("lenet", "LeNet, CIFAR-10", subjects.lenet, 100, 500)
STUDIES = (
    LENET,
    Study("resnet20", "ResNet-20, CIFAR-10", subjects.resnet20, 4, 20),
    Study("mlp5", "MLP-5", _mlp5, 100, 0, _columns, exact=True, methods=_INPUT_METHODS),
    Study("alexnet", "AlexNet of width 8, Tiny ImageNet", _on_tiny("alexnet"), 10, 60, lambda _: "grid"),
    Study("vgg16", "VGG-16 of width 8, Tiny ImageNet", _on_tiny("vgg16"), 10, 60, lambda _: "grid"),
    Study("resnet50", "ResNet-50 of width 8, Tiny ImageNet", _on_tiny("resnet50"), 10, 60, lambda _: "grid"),
)


def measure_study(study: Study, place: Place) -> tuple[Subject, BiasResult]:
    """Train or load the network, sample what is not yet sampled, and judge every method; the result is kept as JSON."""
    subject = study.subject(place)
    x, y = subject.samples(study.samples)
    result = measure_bias(
        subject.network,
        x,
        y,
        background=subject.background(BACKGROUND),
        permutations=study.permutations or 1,
        estimator="exact" if study.exact else None,
        players=study.players(subject),
        methods=study.methods,
        budget=BUDGET,
        subject=_named(study, subject),
        tables=KeptShapley(place.out / "shapley"),
        progress=lambda what, done, total: place.progress(f"{study.title}: {what}", done, total),
    )
    result.save(result_file(place.out, study.name))
    return subject, result


def signed_gradient_bias(study: Study, subject: Subject, place: Place) -> Bias:
    """Return the bias of the gradient with its sign, of the channel with the largest magnitude, on the same samples.

    The paper describes its Grad by magnitudes, but nearly the same bias on both sides fits a map of both signs only.
    """
    x, y = subject.samples(study.samples)
    gradient = explain.attribute(subject.network, x, y, "grad").detach()
    signed = gradient.gather(1, gradient.abs().argmax(dim=1, keepdim=True)).flatten(1).double().numpy()
    reference = KeptShapley(place.out / "shapley")(
        subject.network,
        x,
        y,
        background=subject.background(BACKGROUND),
        samples=study.permutations,
        estimator="antithetic",
        seed=0,
        baseline=None,
        players=explain.pixels(tuple(x.shape[1:])),
    )
    return attribution_biases(signed, reference.values)


def result_file(out: Path, network: str) -> Path:
    """Return where the bias of a network's explainers is kept."""
    return out / "bias-table" / f"{network}.json"


def _named(study: Study, subject: Subject) -> str:
    """Name a trained network so that another training has another name."""
    examples = len(subject.benchmark.tasks[0].train)
    return f"{study.title}, {examples} training examples, test accuracy {subject.accuracy:.4f}"


def lenet_bias(place: Place) -> tuple[Subject, BiasResult]:
    """Return the LeNet and the bias of its explainers: as it was kept of this very network, or measured now."""
    file, subject = result_file(place.out, LENET.name), LENET.subject(place)
    if file.exists():
        kept = BiasResult.load(file)
        if kept.subject == _named(LENET, subject) and kept.samples == LENET.samples:
            return subject, kept
    return measure_study(LENET, place)


def run(place: Place, studies: Sequence[Study] | None = None) -> str:
    """Measure all networks and return the section: a table for each, the paper's numbers in it, and how the orders agree.

    A network whose data are not there is named with the reason; if there are data for none, that is an error.
    """
    chosen = STUDIES if studies is None else studies
    published = published_tables()
    parts, failed = [], []
    for study in chosen:
        try:
            parts.append(_study_section(study, published.get(study.name), place))
        except InputError as error:
            failed.append(error)
            parts.append(f"### {study.title}\n\nNot run: {error}.")
    if failed and len(failed) == len(chosen):
        raise failed[0]
    absent = [name for name in published if name not in {study.name for study in chosen}]
    if absent:
        named = ", ".join(f"{name} (Table {published[name].number})" for name in absent)
        parts.append(f"Not run here: {named}.")
    return "\n\n".join(parts) + "\n"


def _study_section(study: Study, paper: PublishedTable | None, place: Place) -> str:
    subject, result = measure_study(study, place)
    picture = f"bias-table-{study.name}.png"
    figures.save(figures.bias_bars(result), place.pictures / picture)
    text = network_section(_heading(study, subject), subject.accuracy, result, paper, picture)
    if paper is not None and result.settings["players"] == "pixels":
        text += "\n\n" + lookalikes(result, paper, signed_gradient_bias(study, subject, place).mean)
    return text


def _heading(study: Study, subject: Subject) -> str:
    return study.title if "," in study.title else f"{study.title}, {subject.benchmark.name}"


EXPERIMENT = Experiment(
    name="bias-table",
    title="The bias of the methods on each network",
    paper="Figures 7 and 8, Tables 3 to 12",
    run=run,
)
