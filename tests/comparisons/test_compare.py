"""Two versions of a model: accuracy, flips, confidences, reasons, references and the verdict."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.linear_model import LogisticRegression
from torch import nn

import perdure
from perdure import InputError
from perdure.audits.shapc.runner import halves_for_pair_values
from perdure.comparisons import maps
from perdure.engine import Shard, ShardEngine, StatusFolder
from perdure.engine.local import LocalEngine
from perdure.engine.study import IncompleteStudyError
from perdure.explain import Tokens
from tests.helpers.versions import both_informative, make_net, rows, trained

DATA = both_informative()
FAST: dict[str, Any] = {"data": DATA, "samples": 20, "examples": 15}
REFERENCES = tuple(trained(seed) for seed in range(2, 6))


def shifted(net: Any, unit: int, by: float) -> Any:
    """Return a copy whose output bias of one class is larger: other predictions for the same reasons."""
    other: Any = copy.deepcopy(net)
    with torch.no_grad():
        other[-1].bias[unit] += by
    return other


def test_a_version_is_unchanged_with_itself():
    comparison = perdure.compare(trained(0), copy.deepcopy(trained(0)), **FAST)
    assert comparison.verdict == "unchanged"
    assert comparison.accuracy.mean == 0
    assert comparison.accuracy.low <= 0 <= comparison.accuracy.high
    assert len(comparison.flips.negative) == len(comparison.flips.positive) == len(comparison.flips.other) == 0
    assert comparison.reasons.calibrated.mean == pytest.approx(1, abs=1e-9)
    assert comparison.reasons.shapc.mean == 1
    assert comparison.reasons.per_example == pytest.approx(1)


def test_accuracies_and_flips_are_those_of_the_predictions():
    x, labels = DATA
    old, new = trained(0), trained(1, (1,))
    predicted = [net(torch.from_numpy(x)).argmax(1).numpy() for net in (old, new)]
    comparison = perdure.compare(old, new, **FAST)
    right = [answer == labels for answer in predicted]
    assert comparison.accuracy.old == right[0].mean()
    assert comparison.accuracy.new == right[1].mean()
    assert comparison.accuracy.mean == pytest.approx(right[1].mean() - right[0].mean())
    assert comparison.flips.negative.tolist() == np.flatnonzero(right[0] & ~right[1]).tolist()
    assert comparison.flips.positive.tolist() == np.flatnonzero(~right[0] & right[1]).tolist()
    both_wrong = ~right[0] & ~right[1] & (predicted[0] != predicted[1])
    assert comparison.flips.other.tolist() == np.flatnonzero(both_wrong).tolist()
    for unit, group in enumerate(comparison.accuracy.by_class):
        rows_of = labels == unit
        assert (group.old, group.new) == (right[0][rows_of].mean(), right[1][rows_of].mean())
        assert group.examples == rows_of.sum()
        assert group.low <= group.mean <= group.high


def test_an_output_bias_changes_answers_but_no_reasons():
    comparison = perdure.compare(trained(0), shifted(trained(0), 0, 4.0), **FAST)
    assert comparison.reasons.calibrated.mean == pytest.approx(1, abs=1e-9)
    assert len(comparison.flips.negative) > 10
    assert comparison.verdict == "changed"
    assert "accuracy of NEW is lower" in comparison.because
    changed = {group.name for group in comparison.accuracy.by_class if group.high < 0}
    assert changed <= {"class 2", "class 3"}
    assert changed


def test_the_same_answer_for_different_reasons_is_found():
    """A network that reads column 1 instead of column 0 answers alike, for other reasons, and the report shows both."""
    comparison = perdure.compare(trained(0), trained(0, (1,)), reference=REFERENCES, **FAST)
    assert comparison.verdict == "changed"
    assert comparison.p_value < 0.01
    assert abs(comparison.accuracy.mean) < 0.05
    first = comparison.reasons.importance[0]
    assert first.feature in ("column 1", "column 2")
    moved = {change.feature: change for change in comparison.reasons.importance}
    assert moved["column 1"].high < 0 < moved["column 2"].low
    assert moved["column 1"].retraining is not None
    assert moved["column 1"].retraining.p < 0.05
    assert moved["column 5"].low < 0 < moved["column 5"].high
    shares = [sum(getattr(change, name) for change in moved.values()) for name in ("old", "new")]
    assert shares == pytest.approx([1, 1])
    different = comparison.reasons.same_answer
    assert [example.calibrated for example in different] == sorted(example.calibrated for example in different)
    assert all(example.old == example.new for example in different)


def test_a_retrained_version_is_unchanged_and_the_test_is_that_of_the_similarities():
    comparison = perdure.compare(trained(0), trained(1), reference=REFERENCES, **FAST)
    assert comparison.verdict == "unchanged"
    assert list(comparison.tests) == ["importance", "reasons", "scale", "accuracy"]
    reasons, accuracy = comparison.tests["reasons"], comparison.tests["accuracy"]
    assert reasons.versions == 5
    assert reasons.low <= reasons.observed <= reasons.high == 1
    assert [test.level for test in comparison.tests.values()] == pytest.approx([0.975, 0.99, 0.99, 0.995])
    shares = {"importance": 0.5, "reasons": 0.2, "scale": 0.2, "accuracy": 0.1}
    assert comparison.p_value == pytest.approx(
        min(1, *(test.p / shares[name] for name, test in comparison.tests.items()))
    )
    assert accuracy.observed == comparison.accuracy.new
    # The prediction interval and the p-value come from one distribution, that of -log(1 - similarity).
    observed, centre, low = (-math.log(1 - value) for value in (reasons.observed, reasons.expected, reasons.low))
    scale = (centre - low) / stats.t.ppf(0.99, 4)
    assert reasons.p == pytest.approx(stats.t.cdf((observed - centre) / scale, 4))


def scaled(net: Any, factor: float) -> Any:
    """Return a copy with larger or smaller logits: the same answers, other confidences."""
    other: Any = copy.deepcopy(net)
    with torch.no_grad():
        other[-1].weight *= factor
        other[-1].bias *= factor
    return other


@pytest.mark.parametrize("factor", [0.0, 0.05, 20.0])
def test_a_version_with_other_confidences_or_without_attributions_changed(factor):
    comparison = perdure.compare(trained(0), scaled(trained(1), factor), reference=REFERENCES, **FAST)
    assert comparison.verdict == "changed"
    assert "size of attributions" in comparison.because
    assert comparison.tests["scale"].p < 0.01
    assert comparison.tests["scale"].observed == pytest.approx(
        factor * perdure.compare(trained(0), trained(1), reference=REFERENCES, **FAST).tests["scale"].observed,
        rel=1e-5,
        abs=1e-6,
    )


def test_reasons_that_cannot_be_compared_are_undecided():
    """All versions ignore their inputs: nothing can be said about reasons, and equal accuracies do not change that."""
    nets = [scaled(trained(seed), 0.0) for seed in range(6)]
    for index, net in enumerate(nets):
        with torch.no_grad():
            net[-1].bias[:] = torch.tensor([1.0, 0.0, 0.1 * index])
    comparison = perdure.compare(nets[0], nets[1], reference=nets[2:], **FAST)
    assert comparison.verdict == "undecided"
    assert "cannot be compared" in comparison.because


def test_a_probability_as_the_only_output_is_one():
    x, labels = rows(60, (0,), 3)
    binary = (labels > 0).astype(int)
    torch.manual_seed(0)
    net: Any = nn.Sequential(nn.Linear(6, 1))
    with torch.no_grad():
        net[0].weight.zero_(), net[0].bias.zero_()
        net[0].weight[0, 0] = 3.0
        net[0].bias[0] = 2.0
    logits = perdure.compare(net, copy.deepcopy(net), data=(x, binary), samples=4, examples=6)
    probabilities = nn.Sequential(*net, nn.Sigmoid())
    sigmoid = perdure.compare(probabilities, copy.deepcopy(probabilities), data=(x, binary), samples=4, examples=6)
    assert logits.accuracy.old == sigmoid.accuracy.old > 0.9
    assert logits.confidences[2].old == pytest.approx(sigmoid.confidences[2].old, rel=1e-4)


def test_columns_of_a_data_frame_name_the_features():
    frame = pytest.importorskip("pandas").DataFrame(DATA[0], columns=[f"f{k}" for k in range(6)])
    comparison = perdure.compare(trained(0), trained(0, (1,)), data=(frame, DATA[1]), samples=8, examples=12)
    assert {change.feature for change in comparison.reasons.importance} == set(frame.columns)


def test_the_output_to_explain_is_chosen():
    comparisons = [perdure.compare(trained(0), trained(1), target=target, **FAST) for target in ("label", 0)]
    assert comparisons[0].reasons.importance != comparisons[1].reasons.importance
    assert comparisons[1].settings["target"] == 0
    with pytest.raises(InputError, match="target"):
        perdure.compare(trained(0), trained(1), target="lable", **FAST)  # type: ignore[arg-type]


def test_without_references_different_reasons_are_undecided():
    comparison = perdure.compare(trained(0), trained(0, (1,)), **FAST)
    assert comparison.verdict == "undecided"
    assert math.isnan(comparison.p_value)
    assert "Without references" in comparison.because


def test_everything_is_paired_and_repeats(tmp_path):
    first = perdure.compare(trained(0), trained(1), cache=tmp_path, **FAST)
    again = perdure.compare(trained(0), trained(1), cache=tmp_path, **FAST)
    without = perdure.compare(trained(0), trained(1), **FAST)
    assert first.to_json() == again.to_json() == without.to_json()
    reversed_order = perdure.compare(trained(1), trained(0), **FAST)
    assert reversed_order.reasons.shapc.mean == first.reasons.shapc.mean  # same examples, same draws
    assert reversed_order.accuracy.mean == -first.accuracy.mean
    assert reversed_order.flips.negative.tolist() == first.flips.positive.tolist()


def test_finished_maps_are_not_computed_again(tmp_path, monkeypatch):
    perdure.compare(trained(0), trained(1), cache=tmp_path, **FAST)
    calls: list[int] = []

    def counted(*given):
        calls.append(1)
        return halves_for_pair_values(*given)

    monkeypatch.setattr("perdure.comparisons.maps.halves_for_pair_values", counted)
    perdure.compare(trained(0), trained(1), cache=tmp_path, **FAST)
    assert not calls
    perdure.compare(trained(0), trained(2), cache=tmp_path, **FAST)  # only the new version is explained
    assert 2 <= len(calls) <= 2 + 4  # 15 examples in two parts, and flips that were not among them


def test_the_models_are_left_as_they_were():
    nets = [trained(0), trained(1), *REFERENCES]
    before = [{name: value.clone() for name, value in net.state_dict().items()} for net in nets]
    for net in nets:
        net.train()
    perdure.compare(nets[0], nets[1], reference=REFERENCES, **FAST)
    for net, state in zip(nets, before, strict=True):
        assert net.training
        assert not any(module._forward_hooks for module in net.modules())
        assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
        net.eval()


def test_estimators_and_functions_are_compared_with_shapley_values():
    x, labels = rows(200, (0,), 1)
    old = LogisticRegression().fit(x, labels)
    new = LogisticRegression().fit(*rows(200, (1,), 1))
    comparison = perdure.compare(old, new, data=DATA, samples=10, examples=12)
    assert comparison.settings["method"] == "exact_shapley"
    assert any("no gradients" in note for note in comparison.notes)
    assert comparison.reasons.calibrated.mean < 0.5
    function = perdure.compare(old.predict_proba, new.predict_proba, data=DATA, samples=10, examples=12)
    assert function.accuracy.mean == comparison.accuracy.mean
    assert math.isnan(function.reasons.calibrated.mean)
    assert "cannot be fitted again" in str(function.reasons.calibrated.reason)
    assert function.reasons.shapc.mean == pytest.approx(comparison.reasons.shapc.mean)


def test_confidences_of_probabilities_and_of_logits_agree():
    net: Any = trained(0)
    probabilities = perdure.adapt(nn.Sequential(*net, nn.Softmax(dim=1)))
    by_logits = perdure.compare(net, trained(1), **FAST).confidences
    by_probabilities = perdure.compare(probabilities, trained(1), **FAST).confidences
    for first, second in zip(by_logits, by_probabilities, strict=True):
        assert first.old == pytest.approx(second.old, abs=1e-5)
    assert [entry.name for entry in by_logits] == ["expected_calibration_error", "brier_score", "log_loss"]
    assert all(entry.difference.low <= entry.difference.mean <= entry.difference.high for entry in by_logits)


def test_the_confidence_of_a_binary_model_with_one_output_is_the_logistic_function_of_its_score():
    x = np.array([[2.0], [-1.0], [0.5], [-3.0]], dtype=np.float32)
    labels = np.array([1, 0, 1, 0])
    identity = nn.Linear(1, 1)
    with torch.no_grad():
        identity.weight.fill_(1), identity.bias.zero_()
    comparison = perdure.compare(identity, copy.deepcopy(identity), data=(x, labels), samples=2, examples=4)
    signs = np.where(labels == 1, 1, -1)
    expected = np.log1p(np.exp(-signs * x[:, 0])).mean()
    assert comparison.confidences[2].old == pytest.approx(expected, rel=1e-5)


def test_regression_has_no_accuracy_but_reasons():
    x, labels = DATA
    target = (labels + 0.5).astype(np.float32)
    torch.manual_seed(0)
    old, new = (nn.Linear(x.shape[1], 1) for _ in range(2))
    comparison = perdure.compare(old, new, data=(x, target), samples=4, examples=6)
    assert "no accuracy" in str(comparison.accuracy.reason)
    assert math.isnan(comparison.accuracy.mean)
    assert 0 <= comparison.reasons.shapc.mean < 1
    assert comparison.verdict == "undecided"


def test_words_of_texts_have_an_importance():
    torch.manual_seed(0)
    vocabulary = ("[mask]", "good", "bad", "the", "film", "plot")
    rng = np.random.default_rng(0)
    ids = rng.integers(1, 6, size=(30, 4))
    labels = (ids == 1).any(axis=1).astype(int)

    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(6, 4), nn.Linear(4, 2)

        def forward(self, tokens):
            return self.head(self.embedding(tokens).mean(dim=1))

    old, new = (perdure.adapt(Bag(), Tokens(mask=0, vocabulary=vocabulary)) for _ in range(2))
    comparison = perdure.compare(old, new, data=(ids, labels), samples=4, examples=30)
    assert {change.feature for change in comparison.reasons.importance} == set(vocabulary[1:])
    shown = comparison.shown[0].view
    assert shown.kind == "text"
    assert set(shown.names) <= set(vocabulary)


@pytest.mark.parametrize(
    ("new", "options", "message"),
    [
        (nn.Linear(6, 4), {}, "4 outputs, but OLD (Sequential) has 3"),
        (nn.Linear(5, 3), {}, "5"),
        (trained(1), {"data": (DATA[0], DATA[1] + 5)}, "class 7, but the versions have outputs 0 to 2"),
        (trained(1), {"data": None}, "pass data=(inputs, labels)"),
        (trained(1), {"reference": REFERENCES[:2]}, "2 versions, expected at least 3"),
        (trained(1), {"reference": [*REFERENCES[:2], copy.deepcopy(REFERENCES[0])]}, "equal those of reference 1"),
        (trained(1), {"reference": [*REFERENCES[:2], trained(0)]}, "equal those of OLD"),
        (trained(1), {"reference": 3}, "only a record of perdure run can be trained again"),
        (trained(1), {"examples": 1}, "examples: expected at least 2"),
        (trained(1), {"method": "expected_gradient"}, "did you mean 'expected_gradients'"),
        ("nowhere.pt", {}, "nowhere.pt: no such file"),
    ],
)
def test_invalid_input_is_named(new, options, message):
    with pytest.raises(InputError) as error:
        perdure.compare(trained(0), new, **{**FAST, **options})
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_scores_that_are_not_finite_are_refused():
    broken: Any = copy.deepcopy(trained(1))
    with torch.no_grad():
        broken[-1].bias[0] = math.nan
    with pytest.raises(InputError, match="NaN"):
        perdure.compare(trained(0), broken, **FAST)


def test_weights_files_with_a_network(tmp_path):
    for name, seed in (("old.pt", 0), ("new.pt", 1)):
        torch.save(trained(seed).state_dict(), tmp_path / name)
    by_file = perdure.compare(tmp_path / "old.pt", tmp_path / "new.pt", network=make_net, **FAST)
    by_module = perdure.compare(trained(0), trained(1), **FAST)
    assert by_file.accuracy == by_module.accuracy
    assert by_file.reasons.shapc == by_module.reasons.shapc
    with pytest.raises(InputError, match="needs network=make_net"):
        perdure.compare(tmp_path / "old.pt", tmp_path / "new.pt", **FAST)
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(InputError, match="expected a record or a file of weights"):
        perdure.compare(tmp_path / "notes.txt", tmp_path / "new.pt", network=make_net, **FAST)


def test_a_comparison_is_stored_and_read_again(tmp_path):
    comparison = perdure.compare(trained(0), trained(0, (1,)), reference=REFERENCES, **FAST)
    comparison.save(tmp_path / "comparison.json")
    stored = perdure.Comparison.load(tmp_path / "comparison.json")
    assert stored.to_json() == comparison.to_json()
    assert stored.flips.negative.tolist() == comparison.flips.negative.tolist()
    plain = comparison.to_json()
    assert plain["flips"]["positive"] == (comparison.flips.positive + 1).tolist()  # 1-based in files
    assert {"mean", "low", "high"} <= plain["accuracy"].keys()
    assert str(comparison).splitlines()[0].startswith("changed: The importance of features")
    (tmp_path / "other.json").write_text('{"schema": 1, "old": 3}')
    with pytest.raises(InputError, match=r"other\.json: a field is missing or malformed"):
        perdure.Comparison.load(tmp_path / "other.json")


# Engines


def stored_maps(folder):
    """Return the contents of the stored maps."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("comparison/**/*.*")}


def test_worker_processes_and_shards_give_identical_maps(tmp_path, monkeypatch):
    """Flips that are not among the examples are explained, too."""
    options: dict[str, Any] = {**FAST, "examples": 6, "reference": REFERENCES}
    versions = (trained(0), trained(0, (1,)))
    here, there, shards = (tmp_path / name for name in ("here", "there", "shards"))
    expected = perdure.compare(*versions, **options, cache=here).to_json()
    with LocalEngine(2) as engine:
        assert perdure.compare(*versions, **options, cache=there, engine=engine).to_json() == expected
    assert stored_maps(there) == stored_maps(here)
    first, second = (ShardEngine(LocalEngine(1, StatusFolder.of(shards)), Shard(index, 2)) for index in range(2))
    with pytest.raises(IncompleteStudyError, match="are left to other shards"):
        perdure.compare(*versions, **options, cache=shards, engine=first)
    perdure.compare(*versions, **options, cache=shards, engine=second)
    monkeypatch.setattr(maps, "halves_for_pair_values", None)
    assert perdure.compare(*versions, **options, cache=shards).to_json() == expected
    assert stored_maps(shards) == stored_maps(here)


def test_an_engine_needs_a_folder_for_the_maps():
    with pytest.raises(InputError, match="needs cache="):
        perdure.compare(trained(0), trained(1), **FAST, engine=LocalEngine(1))
