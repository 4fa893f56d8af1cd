"""The CLAMP paper: the curves in the package are the authors', and the page shows tables, figures and the experiment."""

import csv
import re

import numpy as np
import pytest

from perdure.learners import Training
from perdure.reproduce.clamp import claims, curves, page, split_mnist, tables
from perdure.reproduce.clamp.synthetic import solve_appendix_b

AUTHORS_FILES = {
    "mnist": {
        "EWC_online": ("EWC_online_mnist", 700),
        "EWC": ("EWC_mnist", 100),
        "MAS": ("MAS", 10000),
        "SI": ("SI", 3000),
    },
    "cifar100": {"EWC_online": ("EWC_online", 3000), "L2": ("L2", 1), "SI": ("SI", 2), "NormalNN": ("NormalNN", 0)},
}


@pytest.mark.parametrize("name", ["mnist", "cifar100"])
def test_the_curves_in_the_package_are_those_of_the_authors_yaml_files(shared_data, name):
    yaml = pytest.importorskip("yaml")
    data = getattr(curves, name)()
    for algorithm, (file, coefficient) in AUTHORS_FILES[name].items():
        (runs,) = yaml.safe_load((shared_data / "clamp" / name / f"{file}.yaml").read_text()).values()
        rows = runs[coefficient][0]["acc_table"]["val"]
        percent = np.array([[rows[str(point)][str(task)] for point in range(6)] for task in range(1, 6)])
        scaled = (percent - 50) / 50 if name == "mnist" else percent / 100
        np.testing.assert_allclose(data.values[data.algorithms.index(algorithm)], scaled, atol=1e-12)


def test_the_atari_curves_in_the_package_are_those_of_the_authors(shared_data):
    data = curves.atari()
    for game in range(6):
        with (shared_data / "clamp" / "atari" / f"game{game}.csv").open() as file:
            rows = [
                [float(row[name]) for name in ("clear", "pnc", "oewc", "ewc", "impala")] for row in csv.DictReader(file)
            ]
        reward = np.array(rows).T
        np.testing.assert_allclose(data.values[:, game], reward / reward.max())
    assert data.curriculum == (0, 1, 2, 3, 4, 5) * 2


def test_the_exact_fit_recovers_what_the_curves_of_appendix_b_determine_and_the_authors_adam_does_not():
    result = solve_appendix_b()
    assert round(result.adam_errors["transfer"], 4) == 0.1174
    assert max(result.fit_errors.values()) < 1e-12


def test_a_claim_is_undecidable_if_one_competing_explanation_contradicts_it():
    assert claims._verdict(0.99, np.array([True, True])) == "supported"
    assert claims._verdict(0.99, np.array([True, False])) == "undecidable"
    assert claims._verdict(0.01, np.array([False, False])) == "not supported"
    assert claims._verdict(0.01, np.array([True, False])) == "undecidable"
    assert claims._verdict(0.5, np.array([True])) == "undecidable"


def section(text, title):
    (part,) = [part for part in re.split(r"^(?=## )", text, flags=re.MULTILINE) if part.startswith(f"## {title}\n")]
    return part


@pytest.fixture
def mnist_file(tmp_path):
    """A small file in the format of mnist.npz: the digit is the position of a bright row."""
    rng = np.random.default_rng(0)
    y = np.arange(400) % 10
    x = rng.integers(0, 60, (len(y), 28, 28), dtype=np.uint8)
    for row, label in enumerate(y):
        x[row, 2 * label : 2 * label + 3] += 150
    np.savez(tmp_path / "mnist.npz", x_train=x, y_train=y, x_test=x[:200], y_test=y[:200])
    return tmp_path


@pytest.mark.slow
def test_both_parts_of_the_page(perdure, tmp_path, monkeypatch, mnist_file):
    """All tables have all rows; the second command keeps the sections of the first."""
    monkeypatch.setattr(tables, "REPLICATES", 100)
    monkeypatch.setattr(split_mnist, "SEEDS", 2)
    monkeypatch.setattr(split_mnist, "TRAINING", Training(epochs=1, batch_size=16, lr=0.001, optimizer="adam"))
    monkeypatch.setattr(
        split_mnist,
        "METHODS",
        {name: split_mnist.METHODS[name] for name in ("EWC", "Naive_Rehearsal_1100", "NormalNN")},
    )
    target = ("reproduce", "clamp", "--page", "pages/clamp.md", "--data-dir", mnist_file, "--out", "kept")
    perdure(*target, "--only", "published")
    first = (tmp_path / "pages/clamp.md").read_text()
    assert "Split MNIST, trained again" not in first
    for title in page._TITLES:
        if title != "Split MNIST, trained again":
            assert "| --- |" in section(first, title)
    assert "| EWC | 0.2" in section(first, "Table 1: Atari")
    assert "; paper -0.38" in section(first, "Table 1: Atari")
    assert "| transfer | 0.12 | 0.11740 |" in section(first, "Table 2: synthetic curves (Appendix B)")
    for name in ("atari", "synthetic", "mnist", "cifar100"):
        assert (tmp_path / f"pages/clamp-{name}.png").stat().st_size > 10_000
    perdure(*target, "--only", "split-mnist")
    both = (tmp_path / "pages/clamp.md").read_text()
    for title in page._TITLES:
        if title != "Split MNIST, trained again":
            assert section(both, title) == section(first, title)
    experiment = section(both, "Split MNIST, trained again")
    rows = [line for line in experiment.splitlines() if line.startswith("| NormalNN")]
    assert len(rows) == 2
    assert rows[1].split("|")[3].strip().startswith("1.16")  # the fit of the authors' NormalNN, not another row
    assert "Agreement of the ranks of the 3 methods" in experiment
    assert len(list((tmp_path / "kept/clamp-split-mnist").rglob("record.json"))) == 6
