"""The bias of every method by network, share and side, with the paper's numbers (Figures 7 and 8, Tables 3 to 12)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from perdure import explain, figures, tasks
from perdure.audits.bias.measure import INPUT, METHODS, BiasSettings, PreparedBias, measure_bias, prepare_bias
from perdure.audits.bias.results import BiasResult
from perdure.audits.bias.shapley_cache import CachedShapley
from perdure.audits.bias.units import fill_shapley_cache
from perdure.base.errors import InputError
from perdure.engine import Engine
from perdure.engine.completion import joined_errors
from perdure.engine.study import IncompleteStudyError
from perdure.explain import Players
from perdure.learners import Training
from perdure.metrics import Bias, attribution_biases
from perdure.reproduce.bias import trained_models
from perdure.reproduce.bias.experiment import Experiment, Folders, Workspace
from perdure.reproduce.bias.published_tables import PublishedTable, published_tables
from perdure.reproduce.bias.table_text import table_text_nearest_columns, table_text_section
from perdure.reproduce.bias.tabular_model import load_tabular_model, tabular_columns
from perdure.reproduce.bias.trained_models import TrainedModel, train_or_load, trained_model_task
from perdure.reproduce.provenance import current_provenance
from perdure.runs.cache import Cache
from perdure.tasks import Benchmark
from perdure.tasks.loading import data_folder

BACKGROUND = 100
SAMPLES = 500
"""Integration steps, gradients or perturbations per map."""


@dataclass(frozen=True)
class Study:
    """The measurement of one of the paper's networks."""

    name: str
    """The network's key in the published tables."""
    title: str
    """The network and its data, or the network alone if the data depend on the data folder."""
    model: Callable[[Workspace], TrainedModel]
    examples: int
    permutations: int
    players: Callable[[TrainedModel], Players | str] | str = "pixels"
    """The players, or a function that returns them; everything can be sent to another process."""
    estimator: str | None = None
    """Estimator of the Shapley values; None for the default of `measure_bias`."""
    methods: tuple[str, ...] = METHODS


def table_tiny_imagenet(data_dir: Path | None) -> Benchmark:
    """Return twenty classes of Tiny ImageNet as one task, with 100 training images of each.

    A file with these classes in the official layout is read if there is one; otherwise they are the first task of the data set.
    """
    file = data_folder(data_dir) / "tiny-imagenet-20.zip"
    if file.exists():
        return tasks.load(file, scenario="class", tasks=1)
    complete = tasks.load("split-tiny-imagenet", scenario="class", tasks=10, per_class=100, data_dir=data_dir)
    first = replace(complete, tasks=complete.tasks[:1], curriculum=(0,), class_names=complete.class_names[:20])
    return trained_model_task(first)


def _mlp5(workspace: Workspace) -> TrainedModel:
    return load_tabular_model(workspace)[0]


def _columns(model: TrainedModel) -> Players:
    return tabular_columns(model.benchmark)


def _on_tiny(network: str, workspace: Workspace) -> TrainedModel:
    return train_or_load(workspace, network, table_tiny_imagenet(workspace.data_dir), TINY, width=8)


_INPUT_METHODS = tuple(method for method in METHODS if method != "gradcam")  # Grad-CAM needs a convolutional layer
TINY = Training(epochs=20, batch_size=32, lr=0.01, momentum=0.9, milestones=(15,), decay=0.2)
LENET = Study("lenet", "LeNet, CIFAR-10", trained_models.trained_lenet, 100, 160, estimator="regression")
STUDIES = (
    LENET,
    *(
        Study(
            f"resnet{depth}",
            f"ResNet-{depth}, CIFAR-10",
            partial(trained_models.trained_resnet, depth),
            30,
            20,
            estimator="regression",
        )
        for depth in (20, 32, 44, 56)
    ),
    Study("mlp5", "MLP-5", _mlp5, 100, 0, _columns, estimator="exact", methods=_INPUT_METHODS),
    Study("alexnet", "AlexNet of width 8, Tiny ImageNet", partial(_on_tiny, "alexnet"), 10, 60, "grid"),
    Study("vgg16", "VGG-16 of width 8, Tiny ImageNet", partial(_on_tiny, "vgg16"), 10, 60, "grid"),
    Study("resnet50", "ResNet-50 of width 8, Tiny ImageNet", partial(_on_tiny, "resnet50"), 10, 60, "grid"),
)


def measure_table_study(study: Study, workspace: Workspace) -> tuple[TrainedModel, BiasResult]:
    """Train or load the network, sample its Shapley values unless cached, measure every method, and save the result."""
    if workspace.engine is not None:
        fill_table_shapley_values(study, workspace.folders, workspace.engine)
    model = study.model(workspace)
    x, y = model.examples(study.examples)
    result = measure_bias(
        model.network,
        x,
        y,
        background=model.background(BACKGROUND),
        settings=_settings(study, model),
        subject=_description(study, model),
        shapley_table=CachedShapley(Cache(workspace.out)),
        progress=lambda activity, done, total: workspace.progress(f"{study.title}: {activity}", done, total),
    )
    result.save(table_result_file(workspace.out, study.name))
    return model, result


def _settings(study: Study, model: TrainedModel) -> BiasSettings:
    return BiasSettings(
        methods=study.methods,
        samples=SAMPLES,
        permutations=study.permutations or 1,
        estimator=study.estimator,
        players=study.players if isinstance(study.players, str) else study.players(model),
    )


@dataclass(frozen=True)
class _StudySource:
    """The network and the examples of a study, as another process loads them."""

    study: Study
    folders: Folders
    device: str = "cpu"

    def prepare(self) -> PreparedBias:
        """Return network and examples in the form in which they are explained."""
        model = self.study.model(self.folders.workspace())
        x, y = model.examples(self.study.examples)
        return prepare_bias(model.network, x, y, model.background(BACKGROUND), _settings(self.study, model))


def fill_table_shapley_values(study: Study, folders: Folders, engine: Engine) -> None:
    """Compute the Shapley values of a study with an engine: one unit for each example. The network is trained first."""
    source = _StudySource(study, folders)
    fill_shapley_cache(source.prepare(), source, Cache(folders.out), engine)


def table_signed_gradient_bias(study: Study, model: TrainedModel, workspace: Workspace) -> Bias:
    """Return the bias of the signed gradient of the channel with the largest magnitude, on the same examples.

    The paper describes its Grad as magnitudes, but prints nearly the same bias for both sides, which fits only a signed map.
    """
    x, y = model.examples(study.examples)
    gradient = explain.attribute(model.network, x, y, "grad").detach()
    signed = gradient.gather(1, gradient.abs().argmax(dim=1, keepdim=True)).flatten(1).double().numpy()
    prepared = prepare_bias(model.network, x, y, model.background(BACKGROUND), _settings(study, model))
    reference = CachedShapley(Cache(workspace.out))(
        prepared.network, prepared.x, prepared.units, **prepared.tables[INPUT]
    )
    return attribution_biases(signed, reference.values)


def table_result_file(out: Path, network: str) -> Path:
    """Return the file that stores the bias of a network's explainers."""
    return out / "bias-table" / f"{network}.json"


def _description(study: Study, model: TrainedModel) -> str:
    """Return a description that differs between different trainings of the same network."""
    examples = len(model.benchmark.tasks[0].train)
    return f"{study.title}, {examples} training examples, test accuracy {model.accuracy:.4f}"


def table_lenet_bias(workspace: Workspace) -> tuple[TrainedModel, BiasResult]:
    """Return the LeNet and the bias of its explainers: the stored result if it belongs to this network, or a new one."""
    file, model = table_result_file(workspace.out, LENET.name), LENET.model(workspace)
    if file.exists():
        stored = BiasResult.load(file)
        if stored.subject == _description(LENET, model) and stored.examples == LENET.examples:
            return model, stored
    return measure_table_study(LENET, workspace)


def run(workspace: Workspace) -> str:
    """Measure all networks and return the section: for each, a table with the paper's numbers and the rank agreement."""
    return run_table_studies(workspace, STUDIES)


def run_table_studies(workspace: Workspace, selected: Sequence[Study], earlier: str = "") -> str:
    """Measure some networks and return the section; the other networks keep their parts of an earlier section.

    A network whose data are missing is listed with the reason; if the data of all networks are missing, an error is raised.
    """
    published = published_tables()
    parts, failed, incomplete = _earlier_parts(earlier), [], []
    for study in selected:
        try:
            parts[study.name] = _study_section(study, published.get(study.name), workspace)
        except InputError as error:
            failed.append(error)
            parts[study.name] = f"### {study.title}\n\nNot run: {error}."
        except IncompleteStudyError as error:
            incomplete.append(error)
    if incomplete:
        raise joined_errors(incomplete)
    if failed and len(failed) == len(selected):
        raise failed[0]
    given = {study.name: study for study in (*STUDIES, *selected)}
    shown = list(given.values())
    texts = [parts.get(study.name, f"### {study.title}\n\nNot run yet.") for study in shown]
    absent = [name for name in published if name not in {study.name for study in shown}]
    if absent:
        listing = ", ".join(f"{name} (Table {published[name].number})" for name in absent)
        texts.append(f"### Other networks of the paper\n\nNot run here: {listing}.")
    return "\n\n".join(texts) + "\n"


def _earlier_parts(section: str) -> dict[str, str]:
    """Return the parts of an earlier section by network."""
    parts = {}
    for part in f"\n{section}".split("\n### ")[1:]:
        heading = part.partition("\n")[0]
        for study in STUDIES:
            if heading == study.title or heading.startswith(f"{study.title}, "):
                parts[study.name] = f"### {part.strip()}"
    return parts


def _study_section(study: Study, paper: PublishedTable | None, workspace: Workspace) -> str:
    model, result = measure_table_study(study, workspace)
    picture = f"bias-table-{study.name}.png"
    figures.save(figures.bias_bars(result), workspace.pictures / picture)
    text = table_text_section(_heading(study, model), model.accuracy, result, paper, picture)
    heading, _, rest = text.partition("\n\n")
    text = f"{heading}\n\n{current_provenance()}\n\n{rest}"
    if paper is not None and result.settings["players"] == "pixels":
        text += "\n\n" + table_text_nearest_columns(
            result, paper, table_signed_gradient_bias(study, model, workspace).mean
        )
    return text


def _heading(study: Study, model: TrainedModel) -> str:
    return study.title if "," in study.title else f"{study.title}, {model.benchmark.name}"


EXPERIMENT = Experiment(
    name="bias-table",
    title="The bias of the methods on each network",
    paper="Figures 7 and 8, Tables 3 to 12",
    run=run,
)
