"""The page of the SHAPC paper: its numbers are those of the rows, and rows of some learners, seeds or studies are enough."""

from __future__ import annotations

import copy
import json
import math
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from perdure import learners, tasks
from perdure.audits import ShapcSettings
from perdure.base.errors import InputError
from perdure.engine.local import LocalEngine
from perdure.learners import Training
from perdure.learners.tuning import with_tuned_settings
from perdure.reproduce.learners import run_rows
from perdure.reproduce.learners.run_rows import audit_of_rows, complete_study_rows, study_digest, study_rows_file
from perdure.reproduce.learners.study import Study
from perdure.reproduce.provenance import read_provenance
from perdure.reproduce.result_rows import ResultRows, Row
from perdure.reproduce.shapc import page as shapc_page
from perdure.reproduce.shapc import studies
from perdure.reproduce.shapc.page import class_names_of_rows, shapc_page_studies, write_shapc_page
from perdure.reproduce.shapc.pictures import shapc_pictures
from perdure.reproduce.shapc.published import published_measure, published_shares
from tests.helpers.image_files import write_cifar100, write_tiny_imagenet

EXAMPLES = 3
SMALL = replace(
    studies.STUDIES["split-cifar10"],
    benchmark="split-digits",
    tasks=2,
    learners=("naive", "joint", "icarl", "lwf", "si"),
    per_class=12,
    network="small-conv",
    width=4,
    training=Training(epochs=1, batch_size=4, lr=0.05, milestones=(1,), decay=0.2),
    trials=0,
    seeds=2,
    settings={"icarl": {"buffer": 20, "lr": 0.1}, "lwf": {"alpha": 3.0}},
    augmentation=None,
)
SCORED = ("naive", "icarl", "lwf", "si")
ORDER = ("icarl", "xder", "co2l", "bfp", "der", "der++", "agem", "lwf", "si")
"""The methods by SHAPC-Mean in the paper's Table 1 for Split CIFAR-10."""


@pytest.fixture(scope="session")
def quick_audits() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(studies, "SETTINGS", ShapcSettings(samples=8, background=6, untrained=2))
        patch.setattr(studies, "EXAMPLES", EXAMPLES)
        yield


def run_study(study: Study, out: Path, data_dir: Path | None = None) -> list[Row]:
    with LocalEngine(1) as engine:
        stored = ResultRows(study_rows_file(out, study))
        return complete_study_rows(study, data_dir, out, stored, engine, studies.examine_runs)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shapc-rows")


@pytest.fixture(scope="session")
def rows(folder: Path, quick_audits: None) -> list[Row]:
    """Rows of five learners with two seeds each, as a finished call leaves them in the file."""
    run_study(SMALL, folder)
    return list(ResultRows(study_rows_file(folder, SMALL)).rows)


def write_page(rows: Sequence[Row], page: Path, study: Study = SMALL, *, pictures: bool = False) -> str:
    """Write the page as if the small study were the one on Split CIFAR-10, and return its text.

    Pictures take most of the time, so only the tests of pictures draw them.
    """
    with pytest.MonkeyPatch.context() as patch:
        if not pictures:
            patch.setattr(shapc_page, "shapc_pictures", lambda *_: {})
        listed = replace(study, benchmark="split-cifar10")
        patch.setattr(studies, "STUDIES", {**studies.STUDIES, "split-cifar10": listed})
        write_shapc_page({"split-cifar10": rows}, page)
    return page.read_text()


@pytest.fixture(scope="session")
def page(rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("shapc-page") / "results" / "stability.md"
    write_page(rows, file, pictures=True)
    return file


@pytest.fixture(scope="session")
def text(page: Path) -> str:
    return page.read_text()


def table(text: str, column: str) -> dict[str, dict[str, str]]:
    """Return the table that has a column, as cells by row and column; a repeated column is named after the one before."""
    header, _, *lines = next(
        block.splitlines() for block in text.split("\n\n") if block.startswith("|") and f"| {column} " in block
    )
    names: list[str] = []
    for name in cells(header):
        names.append(f"{names[-1]}: paper" if name == "paper" else name)
    return {cells(line)[0].strip("`"): dict(zip(names, cells(line), strict=True)) for line in lines}


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line[1:-1].split("|")]


def of(rows: Sequence[Row], learner: str) -> list[Row]:
    return [row for row in rows if row["learner"] == learner]


def number(cell: str) -> float:
    return float(cell.partition(" ± ")[0])


def pair_tables(row: Row) -> list[np.ndarray[Any, Any]]:
    """Return SHAPC of a row's examples, (examples, later steps) for each task."""
    return [np.array(values, dtype=float) for _, values in sorted(row["shapc"]["table"].items())]


def accuracies(row: Row) -> np.ndarray[Any, Any]:
    return np.array(row["measurements"]["table"], dtype=float)


MEASURED: dict[str, Callable[[Row], float]] = {
    "calibrated SHAPC": lambda row: float(row["shapc"]["calibrated"]["mean"]),
    "average accuracy": lambda row: float(accuracies(row)[-1].mean()),
    "forgetting": lambda row: float((accuracies(row)[:-1, :-1].max(axis=0) - accuracies(row)[-1, :-1]).mean()),
    "SHAPC-Mean": lambda row: statistics.fmean(values.mean(axis=0).mean() for values in pair_tables(row)),
    "SHAPC-Var": lambda row: statistics.fmean(
        (values.std(axis=0) / values.mean(axis=0)).mean() for values in pair_tables(row)
    ),
}


def mean_over_seeds(rows: Sequence[Row], learner: str, column: str) -> float:
    return statistics.fmean(MEASURED[column](row) for row in of(rows, learner))


# Table 1


def test_the_section_starts_with_its_provenance_and_its_answer(text, rows):
    heading, provenance, reasons, paper = re.split(r"\n+", text[text.index("## ") :])[:4]
    assert heading == "## Split CIFAR-10"
    (stated,) = read_provenance(provenance)
    assert (stated.commit, stated.seeds) == (rows[0]["commit"], "seeds 0, 1")
    scores = {name: mean_over_seeds(rows, name, "calibrated SHAPC") for name in SCORED}
    best, *others = sorted(SCORED, key=lambda name: -scores[name])
    assert reasons.startswith(f"- **Reasons**: `{best}` keeps its reasons best (calibrated SHAPC {scores[best]:.3f} ±")
    assert f"`{others[-1]}` keeps them least ({scores[others[-1]]:.3f} ±" in reasons
    assert re.search(r"followed by `(.+?)` .* and `(.+?)` ", reasons).groups() == tuple(others[:2])  # type: ignore[union-attr]
    assert paper.startswith("- **Paper**: The ranking by SHAPC-Mean holds in ")
    assert "Incomplete" not in text


@pytest.mark.parametrize("column", MEASURED)
def test_a_column_of_table_1_is_the_mean_of_its_rows(column, text, rows):
    shown = table(text, "average accuracy")
    for learner in SCORED:
        assert shown[learner][column].split(" ± ")[0] == f"{mean_over_seeds(rows, learner, column):.3f}"
        assert shown[learner]["seeds"] == "2"


def test_learners_are_in_the_order_of_calibrated_shapc_and_joint_is_last(text, rows):
    expected = sorted(SCORED, key=lambda name: -mean_over_seeds(rows, name, "calibrated SHAPC"))
    for column in ("average accuracy", "memory (MB)"):
        assert list(table(text, column)) == [*expected, "joint"]
    joint = table(text, "average accuracy")["joint"]
    assert joint["SHAPC-Mean"] == joint["calibrated SHAPC"] == joint["forgetting"] == "–"
    assert number(joint["average accuracy"]) == pytest.approx(
        mean_over_seeds(rows, "joint", "average accuracy"), abs=5e-4
    )


def test_intervals_are_student_t_over_seeds(text, rows):
    for learner in SCORED:
        values = [MEASURED["calibrated SHAPC"](row) for row in of(rows, learner)]
        margin = stats.t.ppf(0.975, 1) * statistics.stdev(values) / math.sqrt(2)
        shown = table(text, "average accuracy")[learner]["calibrated SHAPC"]
        assert float(shown.split(" ± ")[1]) == pytest.approx(margin, abs=6e-4)


def test_the_papers_numbers_stand_next_to_ours(text):
    shown = table(text, "average accuracy")
    columns = ("average accuracy", "forgetting", "SHAPC-Mean", "SHAPC-Var")
    assert [shown["icarl"][f"{name}: paper"] for name in columns] == ["0.632", "0.267", "0.453", "0.112"]
    assert [shown["lwf"][f"{name}: paper"] for name in columns] == ["0.196", "0.962", "0.251", "0.120"]
    assert [shown["naive"][f"{name}: paper"] for name in columns] == [""] * 4


def test_outcomes_retraining_and_costs_are_those_of_the_rows(text, rows):
    shown = table(text, "memory (MB)")

    def mean(values: list[float | None]) -> str:
        known = [value for value in values if value is not None]
        return f"{statistics.fmean(known):.3f}" if known else "–"

    operations = {name: sum(sum(row["measurements"]["cost"]["operations"]) for row in of(rows, name)) for name in shown}
    for learner in SCORED:
        results = [row["shapc"] for row in of(rows, learner)]
        for outcome in ("still correct", "forgotten"):
            expected = mean([result["outcomes"][outcome]["mean"] for result in results])
            assert shown[learner][f"SHAPC, {outcome}"] == expected
        expected = mean([result["retraining"]["calibrated"]["mean"] for result in results])
        assert shown[learner]["other seed, same task: calibrated"] == expected
        assert shown[learner]["multiply-adds / naive"] == f"{operations[learner] / operations['naive']:.2f}"
    assert shown["naive"]["multiply-adds / naive"] == "1.00"
    assert float(shown["icarl"]["multiply-adds / naive"]) > 1.2
    assert shown["joint"]["SHAPC, forgotten"] == "–"


def test_memory_counts_stored_examples_importances_and_frozen_networks(rows, tmp_path):
    changed = copy.deepcopy(list(rows))
    for row in of(changed, "si"):
        cost = row["measurements"]["cost"]
        cost["memory_bits"] = [0, 8e6]
        cost["kept"] = [0, 5e5]
        cost["teachers"] = [3e6, 0]
    shown = table(write_page(changed, tmp_path / "page.md"), "memory (MB)")
    assert (
        shown["si"]["memory (MB)"] == "12.00"
    )  # three million 32-bit numbers in the first step, 1 + 2 MB in the second
    assert shown["naive"]["memory (MB)"] == "0.00"


def test_the_number_of_runs_with_enough_samples_is_counted(rows, tmp_path):
    changed = copy.deepcopy(list(rows))
    for row in changed:
        if "shapc" in row:
            row["shapc"]["budget_is_enough"] = (row["learner"], row["seed"]) not in {("lwf", 1), ("si", 0), ("si", 1)}
    text = write_page(changed, tmp_path / "page.md")
    assert "sufficient in 5 of 8 runs" in text
    assert "; not in `lwf` seed 1, `si` seed 0, `si` seed 1." in text
    assert "8 gradients per map, 6 background images, 3 test examples per task" in text


def test_protocol_and_settings_are_those_of_the_study_and_its_rows(text):
    assert "2 tasks of 5 classes, 12 training images per class, small-conv width 4, sgd, 1 epochs per task" in text
    assert text.endswith("learning rate x 0.2 after epoch 1; `icarl` buffer 20, lr 0.1; `lwf` alpha 3.\n")


# Table 2


def test_the_share_table_is_the_mean_over_runs_at_each_share(text, rows):
    shown = table(text, "10 %: Mean")
    for learner in SCORED:
        for share in (0.1, 0.3, 0.5):
            entries = [row["shapc"]["sensitivity"][str(share)] for row in of(rows, learner)]
            for index, name in enumerate(("Mean", "Var")):
                expected = statistics.fmean(entry[index]["mean"] for entry in entries)
                assert shown[learner][f"{100 * share:.0f} %: {name}"] == f"{expected:.3f}"
        assert shown[learner]["30 %: Mean"] == f"{mean_over_seeds(rows, learner, 'SHAPC-Mean'):.3f}"
    assert [shown["lwf"][f"paper {share} %"] for share in (10, 30, 50)] == [
        "0.187, 0.231",
        "0.285, 0.108",
        "0.415, 0.060",
    ]
    assert shown["si"]["paper 30 %"] == ""
    assert "joint" not in shown


def test_pairs_with_another_order_at_another_share_are_counted(rows, tmp_path):
    changed = copy.deepcopy(list(rows))
    for position, learner in enumerate(SCORED):
        for row in of(changed, learner):
            shares = row["shapc"]["sensitivity"]
            for share, value in (("0.1", position), ("0.3", position), ("0.5", abs(position - 1))):
                shares[share][0]["mean"] = 0.1 * value
    text = write_page(changed, tmp_path / "page.md")
    # At 50 %, the first three learners have .1, 0 and .1: the first pair is reversed, and the tie has no order.
    assert "in the same order by SHAPC-Mean as at 30 %: 6 of 6 at 10 %, 4 of 6 at 50 %." in text


def test_the_published_tables_agree_with_each_other():
    for learner in ("lwf", "icarl", "bfp"):
        printed = tuple(published_measure("split-cifar100", name)[learner] for name in ("shapc_mean", "shapc_var"))
        assert published_shares(learner)[0.3] == printed
    for benchmark in studies.STUDIES:
        for measure in ("average_accuracy", "forgetting", "shapc_mean", "shapc_var"):
            column = published_measure(benchmark, measure)
            assert set(column) == set(studies.METHODS)
            assert all(0 < value < 1 for value in column.values())
    assert (
        max(studies.METHODS, key=lambda name: published_measure("split-tiny-imagenet", "shapc_mean")[name]) == "icarl"
    )
    means = published_measure("split-cifar10", "shapc_mean")
    assert tuple(sorted(means, key=lambda name: -means[name])) == ORDER


# Rankings


def as_learner(row: Row, learner: str, shift: float) -> Row:
    """Return the row of a run as that of another learner whose SHAPC is higher by a shift, slightly different by seed."""
    changed = copy.deepcopy(dict(row))
    by = shift * (1 + 1e-4 * row["seed"])
    run = f"split-cifar10/{learner}/seed-{row['seed']}"
    changed["learner"] = changed["measurements"]["learner"] = changed["shapc"]["learner"] = learner
    changed["measurements"]["run"] = changed["shapc"]["run"] = run
    result = changed["shapc"]
    for name in ("mean", "calibrated"):
        for end in ("mean", "low", "high"):
            result[name][end] += by
    for name in ("table", "calibrated_table"):
        result[name] = {tau: (np.array(values) + by).tolist() for tau, values in result[name].items()}
    return changed


def nine_methods(rows: Sequence[Row], order: Sequence[str], step: float) -> list[Row]:
    """Return rows of the nine methods, whose SHAPC decreases in an order by equal steps."""
    return [
        as_learner(row, learner, step * (len(order) - position))
        for position, learner in enumerate(order)
        for row in of(rows, "naive")
    ]


def test_the_agreement_with_the_paper_counts_pairs(rows, tmp_path):
    order = ("xder", "icarl", "co2l", "bfp", "der", "der++", "agem", "si", "lwf")  # two neighbours are exchanged twice
    text = write_page(nine_methods(rows, order, 0.05), tmp_path / "page.md")
    shown = table(text, "pairs in the same order")
    for measure in ("SHAPC-Mean", "calibrated SHAPC"):
        assert shown[measure]["ranking here"] == " > ".join(f"`{name}`" for name in order)
        assert shown[measure]["ranking in the paper"] == " > ".join(f"`{name}`" for name in ORDER)
        assert shown[measure]["pairs in the same order"] == "34 of 36"
        assert shown[measure]["Kendall's τ"].startswith(f"{(34 - 2) / 36:+.2f} (p < 0.001)")
        reversals = shown[measure]["reversed pairs with a significant difference"]
        assert set(reversals.split(", ")) == {"`xder` above `icarl`", "`si` above `lwf`"}
    assert (
        "holds in 34 of 36 pairs (Kendall's τ +0.89, p < 0.001); 2 of the 2 reversed pairs differ significantly."
        in text
    )
    assert "the paper's first `icarl` is in place 2 here, its last `si` is in place 8." in text
    assert "Learners significantly below `xder`: 8 of 8." in text
    # Accuracies are those of the same runs, so no pair has the paper's order.
    assert shown["average accuracy"]["pairs in the same order"] == "0 of 36"


def test_the_ranking_of_real_rows_agrees_with_a_count_of_pairs(text, rows):
    shown = table(text, "pairs in the same order")
    names = ("icarl", "lwf", "si")
    published = {
        "SHAPC-Mean": {"icarl": 45.29, "lwf": 25.08, "si": 23.03},
        "calibrated SHAPC": {"icarl": 45.29, "lwf": 25.08, "si": 23.03},
        "SHAPC-Var": {"icarl": 11.18, "lwf": 11.99, "si": 13.52},
        "average accuracy": {"icarl": 63.24, "lwf": 19.61, "si": 19.45},
        "forgetting": {"icarl": 26.71, "lwf": 96.16, "si": 93.03},
    }
    for measure, printed in published.items():
        means = {name: mean_over_seeds(rows, name, measure) for name in names}
        same = sum((means[a] - means[b]) * (printed[a] - printed[b]) > 0 for a, b in combinations(names, 2))
        assert shown[measure]["pairs in the same order"] == f"{same} of 3"
        sign = -1 if measure in ("SHAPC-Var", "forgetting") else 1
        best = max(names, key=lambda name: sign * means[name])
        assert shown[measure]["ranking here"].startswith(f"`{best}` >")
        assert shown[measure]["ranking in the paper"].startswith("`icarl` >")
    assert f"holds in {shown['SHAPC-Mean']['pairs in the same order']} pairs" in text
    assert shown["SHAPC-Var"]["reversed pairs with a significant difference"] == "not tested"


def test_a_difference_that_is_not_significant_is_not_listed(rows, tmp_path):
    order = ("xder", "icarl", *ORDER[2:])
    exchanged = nine_methods(rows, order, 1e-9)
    for row in of(exchanged, "icarl"):  # one seed in each direction: the mean difference is far below its spread
        tables = row["shapc"]["table"]
        row["shapc"]["table"] = {
            tau: (np.array(values) + (0.1 if row["seed"] else -0.1)).tolist() for tau, values in tables.items()
        }
    text = write_page(exchanged, tmp_path / "page.md")
    assert table(text, "pairs in the same order")["SHAPC-Mean"]["pairs in the same order"] == "35 of 36"
    assert "; the difference of the reversed pair is not significant." in text
    assert "SHAPC-Mean of icarl" not in text


def test_differences_of_single_seeds_are_not_called_significant(rows, tmp_path):
    order = ("xder", "icarl", *ORDER[2:])
    single = [row for row in nine_methods(rows, order, 0.05) if row["seed"] == 0]
    text = write_page(single, tmp_path / "page.md")
    shown = table(text, "pairs in the same order")["SHAPC-Mean"]
    assert shown["pairs in the same order"] == "35 of 36"
    assert shown["reversed pairs with a significant difference"] == "not tested"
    assert "significantly below" not in text
    assert "this compares two networks, not two methods" in text


def test_significant_differences_are_those_of_the_audit(rows, tmp_path):
    changed = [*of(rows, "naive"), *(as_learner(row, "icarl", 0.2) for row in of(rows, "naive"))]
    text = write_page(changed, tmp_path / "page.md")
    listed = [line for line in text.splitlines() if line.startswith(("- SHAPC-Mean of", "- Calibrated SHAPC of"))]
    assert [f"- {difference}" for difference in audit_of_rows(changed).differences] == listed
    assert "SHAPC-Mean of naive is lower than that of icarl: -0.200" in listed[0]


def test_learners_at_the_level_of_untrained_networks_are_named(rows, tmp_path):
    changed = nine_methods(rows, ("icarl", "lwf", "si"), 0.05)
    for row in changed:
        score = {"icarl": 0.5, "lwf": 0.2, "si": -0.1}[row["learner"]] + 0.002 * row["seed"]
        row["shapc"]["calibrated"] |= {"mean": score, "low": score - 0.01, "high": score + 0.01}
    text = write_page(changed, tmp_path / "page.md")
    assert "Not significantly above untrained networks: `si`." in text
    assert (
        "`icarl` keeps its reasons best (calibrated SHAPC 0.501 ± 0.013), followed by `lwf` (0.201 ± 0.013); " in text
    )


# Partial rows


def test_the_section_names_missing_learners_and_seeds(rows, tmp_path):
    partial = [row for row in rows if row["learner"] != "si" and (row["learner"], row["seed"]) != ("icarl", 1)]
    text = write_page(partial, tmp_path / "page.md")
    assert "**Incomplete**: not measured yet: seed 1 of `icarl`; seeds 0, 1 of `si`. Rankings can change." in text
    assert "intervals of SHAPC of a single run cover its examples only" in text
    shown = table(text, "average accuracy")
    assert "si" not in shown
    assert shown["icarl"]["seeds"] == "1"
    assert shown["icarl"]["average accuracy"] == f"{MEASURED['average accuracy'](of(rows, 'icarl')[0]):.3f}"
    assert table(text, "pairs in the same order")["SHAPC-Mean"]["pairs in the same order"] in {"0 of 1", "1 of 1"}
    text = write_page(rows, tmp_path / "page.md", replace(SMALL, learners=(*SMALL.learners, "bfp"), seeds=3))
    assert "not measured yet: seed 2 of `naive`, `joint`, `icarl`, `lwf` and `si`; seeds 0, 1, 2 of `bfp`." in text


def test_single_learners_and_rows_without_shapc_have_a_section(rows, tmp_path):
    text = write_page(of(rows, "naive"), tmp_path / "naive.md")
    assert "there is no other learner to compare it with" in text
    assert "Does the paper's ranking hold?" not in text
    text = write_page(of(rows, "joint"), tmp_path / "joint.md", pictures=True)
    assert "SHAPC was not computed for any of these runs." in text
    assert "Figures" not in text
    assert list(table(text, "average accuracy")) == ["joint"]
    plain = [{name: value for name, value in row.items() if name not in ("shapc", "maps")} for row in rows]
    text = write_page(plain, tmp_path / "plain.md", pictures=True)
    assert not list(tmp_path.glob("*.png"))
    assert table(text, "average accuracy")["lwf"]["SHAPC-Mean"] == "–"
    assert set(table(text, "pairs in the same order")) == {"average accuracy", "forgetting"}


def test_sections_of_other_studies_are_kept_in_the_order_of_the_studies(rows, tmp_path):
    file = tmp_path / "page.md"
    kept = "## Split CIFAR-100\n\nMeasured before.\n\n### Table 1\n\nNumbers.\n"
    paper = "## Split CIFAR-10, the paper's scale\n\nAlso kept.\n"
    file.write_text(
        f"# Old title\n\nOld text.\n\n{paper}\n{kept}\n## Split CIFAR-10\n\nOld numbers.\n\n## Removed\n\nOld.\n"
    )
    text = write_page(of(rows, "naive"), file)
    assert re.findall(r"^## (.*)$", text, flags=re.MULTILINE) == [
        "Split CIFAR-10",
        "Split CIFAR-100",
        "Split CIFAR-10, the paper's scale",
    ]
    assert kept in text
    assert paper in text
    assert "Old" not in text
    write_shapc_page({"split-cifar10": []}, file)  # no rows yet
    assert file.read_text() == text


def test_rows_that_cannot_be_averaged_and_unknown_studies_are_refused(rows, tmp_path):
    mixed = [*rows, {**rows[0], "protocol": "other", "seed": 2}]
    with pytest.raises(InputError, match="rows of different protocols"):
        write_page(mixed, tmp_path / "page.md")
    with pytest.raises(InputError, match="unknown study 'split-cifar', did you mean 'split-cifar10'"):
        write_shapc_page({"split-cifar": rows}, tmp_path / "page.md")
    assert not list(tmp_path.iterdir())


# Pictures


def test_every_picture_is_linked_with_a_caption_and_is_not_empty(page, text):
    linked = re.findall(r"^!\[(.+)\]\((stability-split-cifar10-.+\.png)\)\n\n\*(.+)\*$", text, flags=re.MULTILINE)
    assert {file for _, file, _ in linked} == {path.name for path in page.parent.glob("*.png")}
    assert [re.sub(r"^stability-split-cifar10-|\.png$", "", file) for _, file, _ in linked] == [
        "maps",
        "first-task",
        "distributions",
        "measures",
        "boxes",
        "matrices",
    ]
    for description, file, caption in linked:
        assert caption.startswith(description)
        assert len(caption) > 120
        pixels = np.asarray(Image.open(page.parent / file).convert("L"), dtype=float)
        assert min(pixels.shape) > 300, file
        assert 0.02 < (pixels < 240).mean() < 0.98, file
        assert pixels.std() > 20, file


def test_figure_1_shows_the_scores_and_decisions_of_the_stored_examples(rows):
    names = tuple(map(str, range(10)))
    figure = shapc_pictures(audit_of_rows(rows), rows, "split-cifar10", names)["maps"]
    panels = np.array(figure.axes).reshape(-1, 5)  # an image and two maps for each of iCaRL and LwF
    assert [panel.get_title() for panel in panels[0]] == [
        "",
        "icarl,\nafter task 1",
        "icarl,\nafter task 2",
        "lwf,\nafter task 1",
        "lwf,\nafter task 2",
    ]
    icarl, lwf = (next(row for row in of(rows, name) if "maps" in row) for name in ("icarl", "lwf"))
    assert [entry["example"] for entry in icarl["maps"]] == [entry["example"] for entry in lwf["maps"]]
    assert len(panels) == len(icarl["maps"]) == EXAMPLES
    for panel_row, *entries in zip(panels, icarl["maps"], lwf["maps"], strict=True):
        assert panel_row[0].get_ylabel() == str(entries[0]["label"])
        for column, (row, entry) in enumerate(zip((icarl, lwf), entries, strict=True)):
            position = row["shapc"]["examples"]["1"].index(entry["example"] + 1)
            score = row["shapc"]["table"]["1"][position][-1]
            for step, label in enumerate(panel.get_xlabel() for panel in panel_row[1 + 2 * column : 3 + 2 * column]):
                decision = entry["predicted"][str(step)]
                assert label.startswith(f"{'✓' if decision == entry['label'] else '✗'} {decision}")
                assert label.endswith(f"SHAPC {score:.2f}") == bool(step)
                shown = panel_row[1 + 2 * column + step].images[0].get_array()
                assert np.allclose(shown, entry["maps"][str(step)], atol=1e-6)


def test_pictures_show_the_learners_in_ranked_order_and_the_papers_values(rows):
    pictures = shapc_pictures(audit_of_rows(rows), rows, "split-cifar10", ())
    ranked = sorted(SCORED, key=lambda name: -mean_over_seeds(rows, name, "calibrated SHAPC"))
    accuracy, *_ = pictures["measures"].axes
    assert [label.get_text() for label in accuracy.get_xticklabels()] == ranked
    heights = [bar.get_height() for bar in accuracy.patches]  # type: ignore[attr-defined]
    assert heights == pytest.approx([mean_over_seeds(rows, name, "average accuracy") for name in ranked])
    points = next(line for line in accuracy.lines if line.get_marker() == "D")
    published = {"icarl": 0.6324, "lwf": 0.1961, "si": 0.1945}
    assert dict(np.column_stack(points.get_data()).tolist()) == pytest.approx(
        {ranked.index(name): value for name, value in published.items()}
    )
    legends = {
        name: [text.get_text() for text in pictures[name].legends[0].get_texts()] for name in ("first-task", "boxes")
    }
    assert legends == {"first-task": ["icarl", "lwf"], "boxes": ["icarl", "lwf", "si"]}
    assert [axes.get_title() for axes in pictures["matrices"].axes[:4]] == ranked


# Rows


def test_a_second_call_reads_the_rows_and_trains_nothing(rows, folder, monkeypatch):
    monkeypatch.setattr(run_rows, "train_learner_study_units", lambda *_: pytest.fail("trained again"))
    assert run_study(SMALL, folder) == list(rows)
    chosen = run_study(replace(SMALL, learners=("si", "naive"), seeds=1, title="Other"), folder)
    assert [(row["learner"], row["seed"]) for row in chosen] == [("si", 0), ("naive", 0)]
    content = study_rows_file(folder, SMALL).read_text()
    assert str(folder) not in content
    assert len(content.splitlines()) == 10
    assert json.loads(content.splitlines()[0])["study"] == "split-cifar10"


def test_the_digest_of_a_study_covers_what_determines_its_runs():
    digest = study_digest(SMALL, "data")
    assert study_digest(replace(SMALL, title="a", learners=(), seeds=9, settings={}), "data") == digest
    for changed in (
        replace(SMALL, width=8),
        replace(SMALL, training=replace(SMALL.training, epochs=2)),
        replace(SMALL, tasks=5),
        replace(SMALL, trials=1),
    ):
        assert study_digest(changed, "data") != digest
    assert study_digest(SMALL, "other data") != digest


# The other studies


@pytest.mark.parametrize(
    ("name", "write", "classes", "side", "published"),
    [
        ("split-cifar100", write_cifar100, 100, 32, ["0.100", "0.890", "0.285", "0.108"]),
        ("split-tiny-imagenet", write_tiny_imagenet, 200, 64, ["0.079", "0.762", "0.264", "0.091"]),
    ],
)
def test_the_other_studies_run_on_data_in_the_official_layout(
    name, write, classes, side, published, tmp_path, monkeypatch, quick_audits
):
    write(tmp_path / "data", 2, 1)
    small = replace(
        studies.STUDIES[name],
        learners=("lwf",),
        per_class=2,
        network="small-conv",
        width=2,
        training=Training(epochs=1, batch_size=20, lr=0.01),
        trials=0,
        seeds=1,
    )
    (row,) = run_study(small, tmp_path / "out", tmp_path / "data")
    assert accuracies(row).shape == (10, 10)
    assert [len(values[0]) for values in pair_tables(row)] == [9, 8, 7, 6, 5, 4, 3, 2, 1]
    assert np.array(row["maps"][0]["image"]).shape == (3, side, side)
    draws = name == "split-cifar100"  # drawing takes as long as the study
    if not draws:
        monkeypatch.setattr(shapc_page, "shapc_pictures", lambda *_: {})
    page = tmp_path / "page.md"
    write_shapc_page({name: [row]}, page, tmp_path / "data" if draws else None)
    text = page.read_text()
    assert f"## {studies.STUDIES[name].title}\n" in text
    assert f"10 tasks of {classes // 10} classes" in text
    shown = table(text, "average accuracy")["lwf"]
    columns = ("average accuracy", "forgetting", "SHAPC-Mean", "SHAPC-Var")
    assert [shown[f"{column}: paper"] for column in columns] == published
    assert len(list(tmp_path.glob(f"stability-{name}-*.png"))) == (6 if draws else 0)
    names = studies.class_names(small, tmp_path / "data")
    assert class_names_of_rows([row]) == names
    assert len(set(names)) == classes


@pytest.mark.parametrize("name", studies.STUDIES)
def test_the_papers_scale_has_the_published_settings(name):
    study = studies.paper_scale(studies.STUDIES[name])
    assert (study.network, study.width, study.per_class, study.trials) == ("resnet18", 64, None, 0)
    assert (study.learners, study.augmentation, study.scenario) == (
        ("naive", "joint", *studies.METHODS),
        "crop-flip",
        "class",
    )
    assert study.training.epochs == (100 if name == "split-tiny-imagenet" else 50)
    assert study.training.batch_size == 32
    assert shapc_page_studies()[f"{name}-paper"] == study
    benchmark = replace(tasks.load("split-digits", per_class=12), name=name)
    for method in studies.METHODS:
        run = learners.Run(benchmark, learners.get(method), network="resnet18", width=64, training=study.training)
        tuned = with_tuned_settings(run, dict(study.settings[method]))
        expected = learners.protocol_settings(benchmark, learners.get(method), {}, {})
        assert tuned.training == expected.training, method
        buffer = {"buffer": 500} if method not in ("lwf", "si") else {}
        assert tuned.settings == {**expected.settings, **buffer}, method


def test_published_settings_of_single_methods():
    cifar, tiny = (
        studies.paper_scale(studies.STUDIES[name]).settings for name in ("split-cifar10", "split-tiny-imagenet")
    )
    assert cifar["der++"] == {"buffer": 500, "lr": 0.03, "alpha": 0.2, "beta": 0.5}
    assert cifar["lwf"] == {"lr": 0.01, "alpha": 3.0, "weight_decay": 5e-4}
    assert (cifar["xder"]["milestones"], cifar["xder"]["decay"]) == ((35, 45), 0.2)
    assert tiny["der"] == {"buffer": 500, "lr": 0.03, "alpha": 0.1}
