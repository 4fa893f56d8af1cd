"""The five-question study: what is measured on each learner, how the answers are related, and the page."""

import copy
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from perdure.audits import ShapcSettings
from perdure.base.errors import InputError
from perdure.engine.local import LocalEngine
from perdure.learners import Training
from perdure.reproduce.five_questions import page, studies
from perdure.reproduce.five_questions.analysis import ANSWERS, analyze
from perdure.reproduce.learners.run_rows import FinishedStudy, complete_study_rows, study_rows_file
from perdure.reproduce.result_rows import ResultRows
from perdure.runs.loaded_run import load_run

pytestmark = pytest.mark.extra
LEARNERS = ("naive", "cumulative", "lwf", "rehearsal", "ewc", "joint")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return the rows of five sequential learners and joint training on a few digits, and the folder of the records."""
    study = replace(
        studies.STUDIES["split-digits"],
        learners=LEARNERS,
        per_class=12,
        width=4,
        training=Training(epochs=1, batch_size=8, lr=0.01, optimizer="adam"),
        trials=0,
        seeds=2,
    )
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(studies, "SHAPC", ShapcSettings(samples=8, background=10))
        patch.setattr(studies, "EXPLAINED_PER_TASK", 3)
        patch.setattr(studies, "BIAS_EXAMPLES", 2)
        patch.setattr(studies, "PERMUTATIONS", {"split-digits": 20})
        patch.setattr(studies, "RETRAINING_EXAMPLES", 6)
        patch.setattr(studies, "RETRAINING_SETTINGS", replace(studies.RETRAINING_SETTINGS, samples=8, background=10))
        rows = ResultRows(study_rows_file(folder / "rows", study))
        complete_study_rows(study, None, folder / "out", rows, LocalEngine(1), studies.examine_five_questions)
    return FinishedStudy(study, rows.rows), folder / "out/split-digits"


def test_all_learners_are_in_the_study_with_equal_trials():
    from perdure import learners

    for study in studies.STUDIES.values():
        assert set(study.learners) <= set(learners.names())
        assert len(study.learners) == 18
        assert study.learners[-1] == "joint"
        assert study.trials >= 3
        assert study.seeds >= 3


def test_every_run_has_every_measurement(finished):
    entry, _ = finished
    assert len(entry.rows) == 2 * len(LEARNERS)
    for row in entry.rows:
        assert ("shapc" in row) == (row["learner"] != "joint")
        methods = set(row["bias"]["explainers"])
        assert {"expected_gradients", "grad", "lime", "constant", "random"} <= methods
        assert "gradcam" not in methods  # measured at a layer, so not comparable
        assert ("seed_agreement" in row) == (row["seed"] == 0)
        assert len(row["measurements"]["table"]) == (1 if row["learner"] == "joint" else 5)


def test_the_agreement_of_seeds_compares_every_two_final_networks_on_every_task(finished):
    entry, folder = finished
    runs = [load_run(folder / f"cumulative/seed-{seed}") for seed in (0, 1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(studies, "RETRAINING_EXAMPLES", 6)
        patch.setattr(studies, "RETRAINING_SETTINGS", replace(studies.RETRAINING_SETTINGS, samples=8, background=10))
        scores = studies.seed_agreement(runs)["expected_gradients"]
        itself = studies.seed_agreement([runs[0], runs[0]])["expected_gradients"]
    stored = next(row for row in entry.rows if row["learner"] == "cumulative" and "seed_agreement" in row)
    assert stored["seed_agreement"]["expected_gradients"]["mege"]["mean"] == pytest.approx(scores.mege.mean)
    correct = []
    for run in runs:
        table = run.network(4)
        predicted = [
            table(run.data.inputs(task, np.arange(len(run.data.labels(task))))).argmax(dim=1).numpy()
            for task in range(5)
        ]
        correct.append([values == run.data.labels(task) for task, values in enumerate(predicted)])
    assert 0 < scores.same <= 30
    assert scores.same + scores.different <= 30
    assert sum(flags.mean() for flags in correct[0]) > 0
    # A network agrees with itself: all distances are 0.
    assert itself.mege.mean == 1
    assert itself.different == 0


def with_values(rows, accuracy=None, shapc=None):
    """Return the rows of the sequential learners with other accuracies and SHAPC, given per learner."""
    changed = []
    for row in copy.deepcopy([row for row in rows if row["learner"] != "joint"]):
        if accuracy is not None:
            table = np.array(row["measurements"]["table"])
            table[-1] = accuracy[row["learner"]] + 0.001 * row["seed"]
            row["measurements"]["table"] = table.tolist()
        if shapc is not None:
            row["shapc"]["calibrated"]["mean"] = shapc[row["learner"]] + 0.001 * row["seed"]
            matrix = np.array(row["shapc"]["matrices"]["calibrated"], dtype=float)
            matrix[:2, 2] = shapc[row["learner"]] + 0.001 * row["seed"]
            row["shapc"]["matrices"]["calibrated"] = [[None if v != v else v for v in line] for line in matrix.tolist()]
        changed.append(row)
    return changed


NAMES = LEARNERS[:-1]


def test_correlations_are_those_of_the_means_over_seeds_with_signs_that_mean_agreement(finished):
    entry, _ = finished
    results = analyze(entry.rows)
    assert [learner.learner for learner in results.learners] == list(NAMES)
    assert results.reference is not None
    assert "shapc" not in results.reference.values
    shapc = [
        np.mean([row["shapc"]["calibrated"]["mean"] for row in entry.rows if row["learner"] == name]) for name in NAMES
    ]
    forgetting = [results.named(name).values["forgetting"].mean for name in NAMES]
    expected = stats.spearmanr(shapc, -np.array(forgetting)).statistic
    assert results.correlation["forgetting", "shapc"].rho == pytest.approx(expected)
    bias = [
        min(v[0] for m, v in row["bias"]["explainers"].items() if m not in ("constant", "random"))
        for row in entry.rows[:2]
    ]
    assert results.learners[0].values["bias"].mean == pytest.approx(np.mean(bias))
    assert sum(count for _, count in results.learners[0].least_biased) == 2
    known = {*results.correlation, *results.undefined}
    assert known == {(a.name, b.name) for i, a in enumerate(ANSWERS) for b in ANSWERS[i + 1 :]}


def test_a_learner_that_keeps_accuracy_and_changes_its_reasons_is_found(finished):
    entry, _ = finished
    accuracy = dict(zip(NAMES, (0.2, 0.9, 0.3, 0.8, 0.7), strict=True))
    shapc = dict(zip(NAMES, (0.1, 0.0, 0.6, 0.5, 0.4), strict=True))
    results = analyze(with_values(entry.rows, accuracy, shapc))
    gaps = {gap.learner: gap for gap in results.gaps}
    assert results.gaps[0].learner == "cumulative"
    assert (gaps["cumulative"].by_accuracy, gaps["cumulative"].by_shapc) == (1, 5)
    assert gaps["cumulative"].high < 0
    assert (gaps["lwf"].by_accuracy, gaps["lwf"].by_shapc) == (4, 1)
    assert gaps["lwf"].low > 0
    text = page._gap_sentence(results.gaps, kept=True)
    assert text.startswith("`cumulative`, rank 1 by accuracy and 5 by calibrated SHAPC (difference -4 [")
    assert "lwf" not in text
    assert page._gap_sentence(results.gaps, kept=False).startswith("`lwf`, rank 4 by accuracy and 1 by")


def test_the_better_predictor_of_forgetting_is_found(finished):
    entry, _ = finished
    rows = with_values(entry.rows)
    final = {name: 0.1 + 0.15 * index for index, name in enumerate(NAMES)}
    early = dict(zip(NAMES, (0.5, 0.3, 0.55, 0.45, 0.35), strict=True))
    for row in rows:
        table = np.full((5, 5), 0.9)
        table[2, :3] = early[row["learner"]]
        table[4, :4] = final[row["learner"]]
        row["measurements"]["table"] = table.tolist()
    results = analyze(with_values(rows, shapc=final))
    prediction = results.prediction
    assert prediction is not None
    assert prediction.over_learners["SHAPC"].rho == pytest.approx(-1)
    assert prediction.over_runs["SHAPC"] < -0.9
    expected = stats.spearmanr(list(early.values()), [-value for value in final.values()]).statistic
    assert prediction.over_learners["accuracy"].rho == pytest.approx(expected)
    assert prediction.advantage.mean == pytest.approx(1 - abs(expected))
    assert prediction.advantage.low <= prediction.advantage.mean <= prediction.advantage.high
    assert results.early["outcome"] == pytest.approx([0.9 - value for value in final.values()])


def test_a_run_whose_network_ignores_its_input_has_no_bias_and_is_named(finished, tmp_path, monkeypatch):
    reason = "the explained outputs do not depend on the inputs: every Shapley value is 0."

    def record_bias(*_, **__):
        raise InputError(reason)

    monkeypatch.setattr(studies, "record_bias", record_bias)
    missing = studies._measured_bias(tmp_path, 20, None, LocalEngine(1))
    assert missing["reason"] == reason
    entry, _ = finished
    rows = copy.deepcopy(entry.rows)
    first, second = (row for row in rows if row["learner"] == "lwf")
    kept = min(values[0] for name, values in second["bias"]["explainers"].items() if name not in ("constant", "random"))
    first["bias"] = missing
    learner = analyze(rows).named("lwf")
    assert learner.runs["bias"] == (kept,)
    assert sum(count for _, count in learner.least_biased) == 1
    text = page.five_questions_section(FinishedStudy(entry.study, rows), tmp_path)
    assert "In 1 of 2 runs of `lwf`, the gradients of the final network are 0 at all explained inputs" in text
    second["bias"] = missing
    assert "bias" not in analyze(rows).named("lwf").values
    assert "are 0 at all" not in page.five_questions_section(entry, tmp_path)
    second["bias"] = copy.deepcopy(entry.rows[0]["bias"])
    second["bias"]["explainers"]["grad"] = [math.nan, math.nan, math.nan]
    assert analyze(rows).named("lwf").runs_without_bias == 2


def test_the_page_answers_the_questions_and_keeps_other_sections(finished, tmp_path):
    entry, _ = finished
    file = tmp_path / "page.md"
    page.write_five_questions_page([entry], file)
    other = replace(entry.study, name="split-mnist", title="Split MNIST")
    some = [row for row in entry.rows if row["learner"] in ("naive", "cumulative")]
    before = file.read_text()
    page.write_five_questions_page([FinishedStudy(other, some)], file)
    text = file.read_text()
    assert "Not finished yet: Split MNIST." in before
    assert "Not finished yet" not in text
    assert before.partition("## ")[2].strip() in text
    assert "Not finished: `lwf`, `rehearsal`, `ewc`, `joint`." in text
    for question in (
        "Which answers agree?",
        "Who keeps its accuracy but changes its reasons?",
        "Which explainer is least biased?",
    ):
        assert before.count(f"**{question}**") == 1
    results = analyze(entry.rows)
    assert results.reference is not None
    for learner in (*results.learners, results.reference):
        row = re.findall(rf"^\| `{learner.learner}` \|.*$", before, re.MULTILINE)[0]
        assert row.split("|")[2].split("±")[0].strip() == f"{learner.values['accuracy'].mean:.3f}"
    assert f"accuracy and forgetting | {results.correlation['accuracy', 'forgetting']} |" in before
    assert (tmp_path / "five-questions-split-digits.png").stat().st_size > 50_000
