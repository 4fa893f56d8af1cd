"""The page of results of the CLAMP paper: tables 1 to 8, figures 1 to 4, and the experiment on Split MNIST."""

from __future__ import annotations

from pathlib import Path

from perdure import surrogate
from perdure.audits import clamp_properties
from perdure.figures.clamp import clamp_performance_curves
from perdure.figures.style import save
from perdure.reproduce.clamp import curves, published
from perdure.reproduce.clamp.claims import claim_table
from perdure.reproduce.clamp.split_mnist import (
    SEEDS,
    Watcher,
    split_mnist_accuracy_table,
    split_mnist_agreement,
    split_mnist_property_table,
    train_split_mnist,
)
from perdure.reproduce.clamp.synthetic import solve_appendix_b, synthetic_table
from perdure.reproduce.clamp.tables import (
    DRAWS,
    REPLICATES,
    algorithm_table,
    difficulty_table,
    fit_published_curves,
    forecast_table,
    loss_table,
    rank_table,
    transfer_table,
    with_rehearsal_levels,
)
from perdure.reproduce.learners.study import write_learner_study_page
from perdure.reproduce.provenance import current_provenance

PARTS = ("published", "split-mnist")
"""Parts of the target: the published tables and figures, and the paper's experiment trained again."""

_TITLES = (
    "The paper's claims",
    "Split MNIST, trained again",
    "Quality of the fits",
    "Forecasts",
    "Table 1: Atari",
    "Table 2: synthetic curves (Appendix B)",
    "Tables 3 and 4: MNIST",
    "Tables 5 to 7: CIFAR-100",
    "Table 8: efficiency on MNIST and CIFAR-100, by rank",
)
_INTRO = [
    "# CLAMP: the paper's tables and figures",
    "",
    "Created by `perdure reproduce clamp`; `--only published` recomputes the tables and figures from the authors' published",
    "curves, which ship with the package, and `--only split-mnist` trains the paper's experiment again (MNIST is downloaded,",
    "or read from `--data-dir`). The other sections are kept.",
    "",
    f'The fits are the default ones (`estimator="map"`). 95 % intervals are from a parametric bootstrap with {REPLICATES}',
    "replicates and cover all competing explanations; ° marks values that are not supported (see [the guide](../clamp.md)).",
    "Efficiency and translation are relative to the mean efficiency of the data set, transfer to the diagonal entry of its",
    f"column; the paper's numbers are scaled in the same way. Verdicts on claims use {DRAWS} draws of the parameters around",
    "the best explanation and all competing explanations. Supported: the claim holds in at least 95 % of the draws and in",
    "every explanation. Not supported: in at most 5 % and in no explanation. Undecidable otherwise.",
    "",
]


def write_clamp_page(part: str, data_dir: Path | None, out: Path, page: Path, watch: Watcher) -> None:
    """Compute a part of the page, save its figures next to it, and write it; sections of the other part are kept."""
    if part == "published":
        texts = _published_sections(page.parent)
    else:
        texts = _split_mnist_sections(data_dir, out, page.parent, watch)
    stated = current_provenance(packages=("torch", "numpy", "scipy"))
    sections = [f"## {title}\n\n{stated}\n\n{text}\n" for title, text in texts.items()]
    write_learner_study_page(_INTRO, sections, _TITLES, page)


def _published_sections(folder: Path) -> dict[str, str]:
    """Return the sections on the authors' curves by title."""
    synthetic = solve_appendix_b()
    atari, mnist, cifar = (fit_published_curves(load()) for load in (curves.atari, curves.mnist, curves.cifar100))
    ranks = surrogate.compare_ranks(
        {"MNIST": with_rehearsal_levels(mnist), "CIFAR-100": with_rehearsal_levels(cifar)}, count=DRAWS
    )
    for name, fit in (
        ("atari", atari.fit),
        ("synthetic", synthetic.fit),
        ("mnist", mnist.fit),
        ("cifar100", cifar.fit),
    ):
        _save_curves(fit, folder, name)
    claims, _, quality, forecasts, table1, table2, table3, table5, table8 = _TITLES
    return {
        claims: claim_table(atari, mnist, cifar, ranks, synthetic),
        quality: (
            "Mean squared error over all cells including t = 0. The exact optimum overfits: its translations are extreme, and\n"
            f"its forecasts are worse.\n\n{loss_table([mnist, cifar, atari])}"
        ),
        forecasts: (
            "Mean squared error of forecasts of all later cells from the first steps. The strength of the prior is selected\n"
            "within those steps. Task means are those of each task when it was trained and when it was not; before a task is\n"
            f"trained, the mean of the other tasks when they were trained.\n\n{forecast_table([atari, mnist, cifar])}"
        ),
        table1: (
            f"Table 1a, algorithms:\n\n{algorithm_table(atari, published.ATARI_PROPERTIES)}\n\n"
            f"Table 1b, transfer:\n\n{transfer_table(atari, published.ATARI_TRANSFER)}\n\n"
            f"Table 1c, difficulty:\n\n{difficulty_table(atari, published.ATARI_DIFFICULTY)}\n\n"
            "Figure 1, curves and fit:\n\n![Atari curves and fit](clamp-atari.png)"
        ),
        table2: (
            "Mean squared errors of the parameters of the authors' seed 0: five tasks, three algorithms, nine random steps.\n"
            f"Their Adam reaches a curve loss of {synthetic.adam_loss:.2e} with a wrong A, because curves do not determine\n"
            f"the paper's parameters. The exact fit has a loss of {synthetic.fit.loss:.0e}; the parameters that curves do\n"
            "determine (see [the guide](../clamp.md#model)), of the tasks that were trained, are recovered exactly.\n\n"
            f"{synthetic_table(synthetic)}\n\n"
            "Figure 2, curves and exact fit:\n\n![Synthetic curves and fit](clamp-synthetic.png)"
        ),
        table3: (
            f"Table 3, algorithms:\n\n{algorithm_table(mnist, published.MNIST_PROPERTIES)}\n\n"
            f"Table 4, transfer:\n\n{transfer_table(mnist, published.MNIST_TRANSFER)}\n\n"
            "Figure 3, curves and fit:\n\n![MNIST curves and fit](clamp-mnist.png)"
        ),
        table5: (
            f"Table 5, algorithms:\n\n{algorithm_table(cifar, published.CIFAR100_PROPERTIES)}\n\n"
            f"Table 6, transfer:\n\n{transfer_table(cifar, published.CIFAR100_TRANSFER)}\n\n"
            f"Table 7, difficulty:\n\n{difficulty_table(cifar, published.CIFAR100_DIFFICULTY)}\n\n"
            "Figure 4, curves and fit:\n\n![CIFAR-100 curves and fit](clamp-cifar100.png)"
        ),
        table8: f"Rank 1 is the highest. Absolute values are not comparable across data sets.\n\n{rank_table(ranks)}",
    }


def _split_mnist_sections(data_dir: Path | None, out: Path, folder: Path, watch: Watcher) -> dict[str, str]:
    """Return the section on the experiment that was trained again."""
    result = train_split_mnist(data_dir, out, watch)
    authors = fit_published_curves(curves.mnist())
    _save_curves(result.fit, folder, "split-mnist")
    low, high = min(result.test_examples), max(result.test_examples)
    text = (
        f"Domain-incremental, five binary tasks, all training images, {low:,} to {high:,} test images per task, two hidden\n"
        f"layers of 400 units, Adam, 4 epochs per task, batch size 128, {SEEDS} seeds, the coefficients of the authors'\n"
        "published runs. Importances are implemented differently (see [learners](../learners.md)), so equal coefficients need\n"
        "not have equal effects.\n\n"
        f"Mean accuracy on all tasks after the last step:\n\n{split_mnist_accuracy_table(result, authors.data)}\n\n"
        f"Properties (chance level .5):\n\n{split_mnist_property_table(result, authors.fit)}\n\n"
        f"{split_mnist_agreement(result, authors.fit)}\n\n"
        + "\n".join(f"- {line}" for line in surrogate.describe(result.fit))
        + "\n\n![Curves and fit of our runs](clamp-split-mnist.png)"
    )
    return {_TITLES[1]: text}


def _save_curves(fit: surrogate.Fit, folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    save(clamp_performance_curves(clamp_properties(fit)), folder / f"clamp-{name}.png")
