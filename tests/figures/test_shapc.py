"""The SHAPC figures draw the numbers that the audit holds."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from perdure import figures, metrics
from perdure.audits import Audit, LearnerAudit, ShapcResult
from perdure.audits.shapc.maps import stored_shapc_maps
from perdure.base.errors import InputError
from tests.helpers.checkpoints import audited, folder, net


@pytest.fixture(scope="module")
def audit() -> Audit:
    """Two learners with three steps each: learner a with two seeds, learner b with one."""
    rng = np.random.default_rng(0)
    results, learners = [], []
    for learner, seeds in (("a", (0, 1)), ("b", (0,))):
        learner_results = []
        for seed in seeds:
            table = {tau: rng.uniform(0.2, 0.6, size=(12, 2 - tau)) for tau in range(2)}
            matrix = np.full((3, 3), np.nan)
            for tau, rows in table.items():
                matrix[tau, tau + 1 :] = rows.mean(axis=0)
            overall = metrics.interval([float(np.nanmean(matrix))])
            learner_results.append(
                ShapcResult(
                    run=f"{learner}/{seed}",
                    learner=learner,
                    benchmark="b",
                    seed=seed,
                    tasks=("1", "2", "3"),
                    curriculum=(0, 1, 2),
                    settings={},
                    mean=overall,
                    var=overall,
                    calibrated=overall,
                    floor=overall,
                    ratio=overall,
                    matrices={"shapc": matrix, "calibrated": matrix},
                    sensitivity={},
                    outcomes={},
                    budget="",
                    budget_is_enough=True,
                    stopped="",
                    table=table,
                    examples={tau: np.arange(12) for tau in table},
                )
            )
        results += learner_results
        measures = {
            name: metrics.interval([0.4, 0.5]) for name in ("average_accuracy", "forgetting", "shapc_mean", "shapc_var")
        }
        accuracies = np.array([[0.9, 0.1, 0.1], [0.5, 0.8, 0.1], [0.3, 0.6, 0.7]])
        learners.append(
            LearnerAudit(
                learner=learner,
                benchmark="b",
                runs=tuple(result.run for result in learner_results),
                measures=measures,
                scores={},
                cl_stability={},
                tasks=("1", "2", "3"),
                curriculum=(0, 1, 2),
                table=accuracies,
                initial=None,
            )
        )
    return Audit(tuple(learners), {}, (), {}, shapc=tuple(results))


def axes(figure: Any) -> list[Any]:
    return list(figure.axes)


def test_lines_show_accuracy_forgetting_and_shapc_of_the_first_task(audit):
    panels = axes(figures.shapc_lines(audit))
    assert [panel.get_title() for panel in panels] == ["accuracy, task 1", "forgetting, task 1", "SHAPC, task 1"]
    assert panels[0].lines[0].get_ydata() == pytest.approx([0.9, 0.5, 0.3])
    assert panels[1].lines[0].get_ydata() == pytest.approx([0, 0.4, 0.6])
    mean = np.mean([result.matrices["shapc"][0, 1:] for result in audit.shapc[:2]], axis=0)
    assert panels[2].lines[0].get_ydata() == pytest.approx(mean)
    assert panels[2].lines[0].get_xdata().tolist() == [2, 3]


def test_distributions_mark_the_mean_of_the_last_step(audit):
    panels = axes(figures.shapc_distributions(audit))
    assert len(panels) == 2
    values = np.concatenate([result.table[1][:, -1] for result in audit.shapc[:2]])
    assert panels[1].lines[0].get_xdata()[0] == pytest.approx(values.mean())


def test_distributions_of_many_learners_are_drawn_in_rows(audit):
    first = audit.learners[0]
    names = [f"learner {number}" for number in range(5)]
    many = replace(
        audit,
        learners=tuple(replace(first, learner=name, runs=(f"{name}/0",)) for name in names),
        shapc=tuple(
            replace(
                audit.shapc[0],
                learner=name,
                run=f"{name}/0",
                table={tau: rows + 0.05 * number for tau, rows in audit.shapc[0].table.items()},
            )
            for number, name in enumerate(names)
        ),
    )
    figure = figures.shapc_distributions(many)
    panel = axes(figure)[0]
    heights = [label.get_position()[1] for label in panel.get_yticklabels()]
    assert [label.get_text() for label in panel.get_yticklabels()] == names
    assert heights == sorted(heights, reverse=True)  # the first learner is on top
    means = [line.get_xdata()[0] for line in panel.lines]
    assert means == pytest.approx([result.table[0][:, -1].mean() for result in many.shapc])
    for patch, result, height in zip(panel.patches, many.shapc, heights, strict=True):
        counts = patch.get_data().values - patch.get_data().baseline
        expected, _ = np.histogram(result.table[0][:, -1], np.linspace(0, 1, 21))
        assert counts / counts.max() == pytest.approx(expected / expected.max())
        assert patch.get_data().baseline == pytest.approx(height - 0.35)
    assert not figure.legends


def test_bars_mark_published_values_of_the_learners_that_have_one(audit):
    panels = axes(figures.shapc_bars(audit, {"shapc_mean": {"b": 0.3, "c": 0.9}}))
    (points,) = [line for line in panels[2].lines if line.get_marker() == "D"]
    assert (points.get_xdata().tolist(), points.get_ydata().tolist()) == ([1], [0.3])
    assert not [line for line in panels[0].lines if line.get_marker() == "D"]


def test_bar_heights_are_the_means_and_titles_show_the_better_direction(audit):
    panels = axes(figures.shapc_bars(audit))
    assert [panel.get_title()[-1] for panel in panels] == ["↑", "↓", "↑", "↓"]
    assert [bar.get_height() for bar in panels[2].patches] == pytest.approx([0.45, 0.45])


def test_one_box_per_learner_and_later_step_with_its_median(audit):
    panel = axes(figures.shapc_boxes(audit))[0]
    medians = [
        line.get_ydata()[0] for line in panel.lines if line.get_color() == "black" and len(line.get_xdata()) == 2
    ]
    expected = np.median(np.concatenate([result.table[0] for result in audit.shapc[:2]]), axis=0)
    for value in expected:
        assert any(abs(value - median) < 1e-12 for median in medians)


def test_matrices_print_the_calibrated_score_of_each_pair(audit):
    panel = axes(figures.shapc_matrices(audit))[0]
    mean = np.mean([result.matrices["calibrated"] for result in audit.shapc[:2]], axis=0)
    assert [text.get_text() for text in panel.texts] == [f"{mean[i, j]:.2f}" for i, j in ((0, 1), (0, 2), (1, 2))]


def test_matrices_clip_calibrated_scores_to_their_scale(audit):
    shifted = [
        replace(result, matrices={**result.matrices, "calibrated": result.matrices["calibrated"] - 2})
        for result in audit.shapc
    ]
    panel = axes(figures.shapc_matrices(replace(audit, shapc=tuple(shifted))))[0]
    assert {text.get_text() for text in panel.texts} == {"0.00"}


def test_an_audit_without_shapc_is_refused_and_names_the_option(audit):
    with pytest.raises(InputError, match="--shapc"):
        figures.shapc_bars(replace(audit, shapc=()))


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_attribution_strip_draws_stored_maps_and_predictions(tmp_path, suffix):
    result = audited(folder(tmp_path / "strip", net(), net(3)), keep_maps=True, examples=10)
    stored = list(stored_shapc_maps(result))
    assert [entry.example for entry in stored] == result.examples[0].tolist()
    assert len(list(stored_shapc_maps(result, per_task=3))) == 3
    assert sorted(stored[0].maps) == [0, 1]
    figure = figures.shapc_attribution_strip(
        {"one": stored[2], "two": stored[2]}, class_names=("zero", "one", "two", "three")
    )
    assert len(figure.axes) == 6
    assert figure.axes[1].get_title() == "after task 1"
    correct = stored[2].predicted[1] == stored[2].label
    assert figure.axes[2].get_xlabel().startswith("✓" if correct else "✗")
    assert figures.save(figure, tmp_path / f"strip.{suffix}").stat().st_size > 1000
    with pytest.raises(InputError, match="expected example"):
        figures.shapc_attribution_strip({"one": stored[2], "two": stored[3]})


def test_an_audit_without_stored_maps_has_no_stored_examples(tmp_path):
    result = audited(folder(tmp_path / "none", net(), net(3)), examples=8)
    assert list(stored_shapc_maps(result)) == []


def test_attribution_pairs_draw_the_first_and_the_last_step_with_the_score(tmp_path):
    result = audited(folder(tmp_path / "pairs", net(), net(3)), keep_maps=True, examples=10)
    one, two, *_ = stored_shapc_maps(result)
    figure = figures.shapc_attribution_pairs(
        {"a": [one, two], "b": [one, two]}, {"a": [0.5, 0.25], "b": [1, 0]}, ("zero", "one", "two", "three")
    )
    panels = np.array(figure.axes).reshape(2, 5)
    assert [panel.get_title() for panel in panels[0, 1:]] == [
        f"{name},\nafter task {step}" for name in "ab" for step in (1, 2)
    ]
    assert [panels[row, 2].get_xlabel().splitlines()[-1] for row in range(2)] == ["SHAPC 0.50", "SHAPC 0.25"]
    assert [panels[row, 4].get_xlabel().splitlines()[-1] for row in range(2)] == ["SHAPC 1.00", "SHAPC 0.00"]
    for row, stored in enumerate((one, two)):
        assert panels[row, 0].get_ylabel() == ("zero", "one", "two", "three")[stored.label]
        for column, step in ((1, 0), (2, 1), (3, 0), (4, 1)):
            drawn = panels[row, column].images[0]
            assert np.allclose(drawn.get_array(), stored.maps[step])
            assert drawn.get_clim()[1] == pytest.approx(np.quantile(np.abs(stored.maps[step]), 0.995))
            mark = "✓" if stored.predicted[step] == stored.label else "✗"
            assert panels[row, column].get_xlabel().startswith(mark)
    with pytest.raises(InputError, match="b: expected example"):
        figures.shapc_attribution_pairs({"a": [one], "b": [two]}, {"a": [1], "b": [1]})
