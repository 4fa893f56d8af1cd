"""Adapters: outputs, several inputs, tokens, time series, groups of columns, and models outside PyTorch."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, SGDClassifier
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

import perdure
from perdure import explain
from perdure.audits.bias.measure import BiasSettings, measure_bias
from perdure.base.errors import InputError
from perdure.explain import Series, Table, Tokens
from perdure.explain.adapters.adapted import Adapted, scores_of
from perdure.explain.adapters.data import labelled_arrays
from perdure.explain.adapters.functions import FunctionModel
from perdure.explain.adapters.inputs import InputForm
from perdure.explain.adapters.models import layer_names

METHODS = explain.method_names()


def rows(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def dense() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).eval()


class WithOutput(nn.Module):
    """A network that returns its scores in another form."""

    def __init__(self, form: Any) -> None:
        super().__init__()
        self.net, self.form = dense(), form

    def forward(self, x: Tensor) -> Any:
        return self.form(self.net(x))


OUTPUTS = {
    "a tuple": lambda scores: (scores, scores * 2),
    "a loss before the scores": lambda scores: (scores.sum(), scores),
    "a dictionary": lambda scores: {"logits": scores, "hidden": scores * 2},
    "an object": lambda scores: SimpleNamespace(logits=scores, loss=None),
}


@pytest.mark.parametrize("form", OUTPUTS.values(), ids=list(OUTPUTS))
@pytest.mark.parametrize("method", [name for name in METHODS if name != "gradcam"])
def test_outputs_in_other_forms_have_the_maps_of_the_plain_network(method, form):
    x, background = rows(3, 6), rows(5, 6, seed=1)
    settings: dict[str, Any] = {"background": background, "samples": 8}
    expected = explain.attribute(dense(), x, 1, method, **settings)
    net = WithOutput(form).eval()
    torch.testing.assert_close(explain.attribute(net, x, 1, method, **settings), expected)
    adapted = perdure.adapt(net, logits=scores_of)
    torch.testing.assert_close(explain.attribute(adapted, x, 1, method, **settings), expected)


def test_a_logits_function_chooses_the_scores_and_other_outputs_name_it_as_the_remedy():
    net = WithOutput(lambda scores: {"probabilities": scores.softmax(1), "scores": scores}).eval()
    x = rows(2, 6)
    with pytest.raises(InputError, match=r"got a dict with the keys probabilities, scores; pass perdure\.adapt"):
        explain.attribute(net, x, 1, "grad")
    maps = explain.attribute(perdure.adapt(net, logits=lambda output: output["scores"]), x, 1, "grad")
    torch.testing.assert_close(maps, explain.attribute(dense(), x, 1, "grad"))
    with pytest.raises(InputError, match="logits: expected a function"):
        perdure.adapt(net, logits="scores")  # type: ignore[arg-type]


def test_one_output_per_example_is_one_column():
    net = WithOutput(lambda scores: scores[:, 2]).eval()
    torch.testing.assert_close(
        explain.attribute(net, rows(2, 6), 0, "grad"), explain.attribute(dense(), rows(2, 6), 2, "grad")
    )


class TwoInputs(nn.Module):
    """An image, a table row, and an integer that selects a bias."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.image, self.row, self.kind, self.head = (
            nn.Linear(8, 5),
            nn.Linear(3, 5),
            nn.Embedding(4, 5),
            nn.Linear(5, 3),
        )

    def forward(self, image: Tensor, row: Tensor, kind: Tensor) -> Any:
        return self.head(torch.tanh(self.image(image.flatten(1)) + self.row(row) + self.kind(kind)))


class Packed(nn.Module):
    """The same network on the concatenated floating-point inputs, for one kind."""

    def __init__(self, kind: int) -> None:
        super().__init__()
        self.net, self.kind = TwoInputs(), kind

    def forward(self, x: Tensor) -> Any:
        kind = torch.full((len(x),), self.kind)
        return self.net(x[:, :8].reshape(-1, 2, 4), x[:, 8:], kind)


@pytest.mark.parametrize("method", ["expected_gradients", "integrated_gradients", "grad", "shapley", "lime"])
@pytest.mark.parametrize("keywords", [True, False])
def test_several_inputs_have_the_maps_of_a_network_with_one_input(method, keywords):
    image, row, kind = rows(2, 2, 4), rows(2, 3, seed=1), torch.tensor([2, 2])
    background = (rows(6, 2, 4, seed=2), rows(6, 3, seed=3), torch.tensor([0, 1, 2, 3, 0, 1]))
    names = ("image", "row", "kind")
    x: Any = dict(zip(names, (image, row, kind), strict=True)) if keywords else (image, row, kind)
    given: Any = dict(zip(names, background, strict=True)) if keywords else background
    maps = explain.attribute(TwoInputs().eval(), x, 1, method, background=given, samples=400)
    maps = maps if keywords else dict(zip(names, maps, strict=True))
    assert {name: tuple(value.shape) for name, value in maps.items()} == {
        "image": (2, 2, 4),
        "row": (2, 3),
        "kind": (2,),
    }
    assert not maps["kind"].any()  # an integer is held fixed
    one = torch.cat([image.flatten(1), row], dim=1)
    expected = explain.attribute(
        Packed(2).eval(),
        one,
        1,
        method,
        background=torch.cat([background[0].flatten(1), background[1]], 1),
        samples=400,
    )
    joined = torch.cat([maps["image"].flatten(1), maps["row"]], dim=1)
    # The draws depend on the example, and the packed rows of the two networks differ in the fixed integer.
    tolerance = {"grad": 1e-6, "integrated_gradients": 1e-6}.get(method, 0.06)
    assert (joined - expected).abs().max() <= tolerance * expected.abs().max()


def test_inputs_of_another_form_are_refused_with_both_forms():
    x = {"image": rows(2, 2, 4), "row": rows(2, 3), "kind": torch.tensor([0, 1])}
    short = {**x, "row": rows(1, 3)}
    with pytest.raises(InputError, match="expected the same number of examples in every input, got image: 2, row: 1"):
        explain.attribute(TwoInputs().eval(), short, 1, "grad")
    with pytest.raises(InputError, match=r"background: expected the inputs image \(float, \(2, 4\)\), .* got row"):
        explain.attribute(TwoInputs().eval(), x, 1, "expected_gradients", background={"row": rows(4, 3)})
    with pytest.raises(InputError, match=r"takes 3 inputs \(image, row, kind\); pass several inputs as a tuple"):
        explain.attribute(TwoInputs().eval(), rows(2, 8), 1, "grad")
    with pytest.raises(InputError, match=r"none of the inputs .* is a floating-point array"):
        explain.attribute(TwoInputs().eval(), {name: value.long() for name, value in x.items()}, 1, "grad")
    with pytest.raises(InputError, match="expected integers up to 16777216"):
        InputForm.of({"ids": torch.tensor([[2**25]])})


class Text(nn.Module):
    """A sum of nonlinear functions of tokens, so that Shapley values are known; positions are embedded too."""

    def __init__(self, length: int = 5, *, returns: str = "tensor") -> None:
        super().__init__()
        torch.manual_seed(3)
        self.tokens, self.positions = nn.Embedding(20, 4), nn.Embedding(length, 4)
        self.score, self.returns = nn.Linear(4, 3), returns

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Any:
        hidden = self.tokens(input_ids) + self.positions(torch.arange(input_ids.shape[1]))
        terms = torch.tanh(self.score(hidden))
        if attention_mask is not None:
            terms = terms * attention_mask[..., None]
        return {"logits": terms.sum(1)} if self.returns == "dictionary" else terms.sum(1)


IDS = torch.randint(1, 20, (3, 5), generator=torch.Generator().manual_seed(0))


def token_effects(net: Text, ids: Tensor, mask: int) -> Tensor:
    """Return what each token adds to each output: the Shapley values of a sum of functions of tokens."""
    positions = net.positions(torch.arange(ids.shape[1]))
    present, absent = (
        torch.tanh(net.score(net.tokens(tokens) + positions)) for tokens in (ids, torch.full_like(ids, mask))
    )
    return (present - absent).detach()


@pytest.mark.parametrize("method", ["shapley", "exact_shapley", "expected_gradients", "integrated_gradients"])
def test_attributions_of_tokens_are_exact_for_a_sum_of_functions_of_tokens(method):
    net = Text().eval()
    expected = token_effects(net, IDS, 0)[..., 1]
    maps = explain.attribute(perdure.adapt(net, Tokens(mask=0)), IDS, 1, method, samples=400)
    assert maps.shape == IDS.shape
    torch.testing.assert_close(maps, expected, atol=2e-3, rtol=0)
    named = explain.attribute(
        perdure.adapt(Text(returns="dictionary").eval(), Tokens(mask=0)),
        {"attention_mask": torch.ones_like(IDS), "input_ids": IDS},
        1,
        method,
        samples=400,
    )
    torch.testing.assert_close(named["input_ids"], expected, atol=2e-3, rtol=0)
    assert not named["attention_mask"].any()


def test_masked_positions_of_a_text_have_no_attribution_and_kept_tokens_are_never_masked():
    net = Text().eval()
    mask = torch.tensor([[1, 1, 1, 0, 0]]).expand(3, 5)
    inputs = {"input_ids": IDS, "attention_mask": mask}
    for method in ("shapley", "expected_gradients", "grad", "gradient_x_input"):
        maps = explain.attribute(perdure.adapt(net, Tokens(mask=0)), inputs, 1, method, samples=40)["input_ids"]
        assert maps[:, 3:].abs().max() <= 1e-7, method
        assert maps[:, :3].abs().min() > 1e-4, method
    first = int(IDS[0, 0])
    kept = explain.attribute(perdure.adapt(net, Tokens(mask=0, keep=(first,))), IDS[:1], 1, "exact_shapley")
    assert kept[0, 0] == 0
    torch.testing.assert_close(kept[0, 1:], token_effects(net, IDS[:1], 0)[0, 1:, 1], atol=1e-5, rtol=0)


def test_the_mean_embedding_and_joined_tokens():
    net = Text().eval()
    mean = explain.attribute(perdure.adapt(net, Tokens(mask="mean")), IDS, 1, "exact_shapley")
    absent = torch.tanh(net.score(net.tokens.weight.mean(0) + net.positions.weight))
    present = torch.tanh(net.score(net.tokens(IDS) + net.positions.weight))
    torch.testing.assert_close(mean, (present - absent)[..., 1].detach(), atol=1e-5, rtol=0)
    joined = explain.attribute(
        perdure.adapt(net, Tokens(mask=0)), IDS, 1, "exact_shapley", players=np.array([0, 0, 1, 1, 1])
    )
    effects = token_effects(net, IDS, 0)[..., 1]
    torch.testing.assert_close(joined[:, 0], effects[:, :2].sum(1), atol=1e-5, rtol=0)
    torch.testing.assert_close(joined[:, 3], effects[:, 2:].sum(1), atol=1e-5, rtol=0)
    with pytest.raises(InputError, match="the tokens are the players, got 'grid'"):
        explain.attribute(perdure.adapt(net, Tokens(mask=0)), IDS, 1, "shapley", players="grid")


def test_a_model_without_an_embedding_layer_is_masked_by_ids():
    class Counts(nn.Module):
        def forward(self, ids: Tensor) -> Any:
            return F.one_hot(ids, 20).float().sum(1)[:, :3] * torch.tensor([1.0, 2.0, 3.0])

    ids = torch.tensor([[1, 2, 1, 5]])
    model = perdure.adapt(Counts(), Tokens(mask=7))
    maps = explain.attribute(model, ids, 1, "exact_shapley")
    assert maps.tolist() == [[2.0, 0.0, 2.0, 0.0]]
    with pytest.raises(
        InputError, match=r"not by an nn.Embedding that returns one vector per token; use 'shapley' or 'lime'"
    ):
        explain.attribute(model, ids, 1, "grad")
    with pytest.raises(InputError, match="there is no mean embedding; pass the id"):
        explain.attribute(perdure.adapt(Counts(), Tokens(mask="mean")), ids, 1, "shapley")


@pytest.mark.parametrize(
    ("tokens", "x", "message"),
    [
        (Tokens(mask=99), IDS, "expected an id from 0 to 19, got 99"),
        (Tokens(mask=0, embedding="words"), IDS, "no nn.Embedding named 'words'"),
        (Tokens(mask=0), rows(2, 5, 4), r"expected token ids of shape \(n, length\), got \(2, 5, 4\)"),
        (Tokens(mask=0, ids="tokens"), {"input_ids": IDS, "attention_mask": IDS}, "no input 'tokens'"),
    ],
)
def test_wrong_descriptions_of_tokens_are_refused(tokens, x, message):
    with pytest.raises(InputError, match=message):
        explain.attribute(perdure.adapt(Text().eval(), tokens), x, 1, "expected_gradients")


def test_a_wrong_description_is_refused_where_it_is_made():
    with pytest.raises(InputError, match="mask must be the id of a token or 'mean', got 'zero'"):
        Tokens(mask="zero")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"unknown layout 'tnc'; expected 'nct' for \(n, channels, time\)"):
        Series("tnc")  # type: ignore[arg-type]
    with pytest.raises(
        InputError, match=r"inputs: expected Tokens\(...\), Series\(...\) or Table\(...\), got 'tokens'"
    ):
        perdure.adapt(dense(), "tokens")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="column 1 is in two groups, 'a' and 'b'"):
        Table({"a": [0, 1], "b": [1]}).labels(3)
    with pytest.raises(InputError, match="group 'a': expected columns from 0 to 2, got 3"):
        Table({"a": [3]}).labels(3)


class Convolutional(nn.Module):
    """A convolution over embedded tokens: rule-based explainers are defined on it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.tokens, self.conv, self.head = nn.Embedding(20, 4), nn.Conv1d(4, 6, 3, padding=1), nn.Linear(30, 3)

    def forward(self, ids: Tensor) -> Any:
        return self.head(F.relu(self.conv(self.tokens(ids).transpose(1, 2))).flatten(1))


def test_rule_based_explainers_work_on_the_embeddings_of_a_text():
    net = Convolutional().eval()
    model = perdure.adapt(net, Tokens(mask=0))
    scores = net(IDS)[:, 1] - net(torch.zeros_like(IDS))[:, 1]
    maps = explain.attribute(model, IDS, 1, "integrated_gradients", samples=400)
    torch.testing.assert_close(maps.sum(1), scores.detach(), atol=1e-3, rtol=0)
    for method in ("lrp", "guided_backprop"):
        assert explain.attribute(model, IDS, 1, method).shape == IDS.shape
    plain = explain.attribute(model, IDS, 1, "lrp", options={"epsilon": 1e-9})
    torch.testing.assert_close(plain, explain.attribute(model, IDS, 1, "gradient_x_input"), atol=1e-4, rtol=0)


@pytest.mark.parametrize("method", METHODS)
def test_kept_tokens_have_no_attribution(method):
    if method == "gradcam":
        return
    model = perdure.adapt(Convolutional().eval(), Tokens(mask=0, keep=(int(IDS[0, 1]),)))
    kept = int(IDS[0, 1]) == IDS
    maps = explain.attribute(model, IDS, 1, method, samples=10)
    assert not maps[kept].any()
    assert maps[~kept].abs().sum() > 0


def test_deepshap_explains_functional_activations_of_texts_and_of_several_inputs():
    net = Convolutional().eval()
    maps = explain.attribute(perdure.adapt(net, Tokens(mask=0)), IDS, 1, "deepshap")
    expected = net(IDS)[:, 1] - net(torch.zeros_like(IDS))[:, 1]
    torch.testing.assert_close(maps.sum(1), expected.detach(), atol=1e-5, rtol=0)

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right, self.head = nn.Linear(4, 6), nn.Linear(3, 6), nn.Linear(6, 2)

        def forward(self, left: Tensor, right: Tensor) -> Any:
            return self.head(torch.relu(self.left(left) + self.right(right)))

    torch.manual_seed(0)
    two = Two().eval()
    x = {"left": rows(3, 4), "right": rows(3, 3, seed=1)}
    background = {"left": rows(9, 4, seed=2), "right": rows(9, 3, seed=3)}
    deep = explain.attribute(two, x, 1, "deepshap", background=background)
    difference = two(**x)[:, 1] - two(**background)[:, 1].mean()
    torch.testing.assert_close(deep["left"].sum(1) + deep["right"].sum(1), difference.detach(), atol=1e-5, rtol=0)


def test_multi_label_models_outside_pytorch_have_one_output_per_label():
    x, y = data(classes=2)
    labels = np.stack([y, x[:, 2] > 0], axis=1).astype(int)
    model = RandomForestClassifier(n_estimators=5, random_state=0).fit(x, labels)
    maps = explain.attribute(model, x[:20], 1, "exact_shapley", background=x)
    assert np.abs(maps).mean(axis=0).argmax() == 2  # the variable that decides the second label


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.rnn, self.head = nn.GRU(2, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.rnn(x)[0][:, -1])


class Transposed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = Recurrent()

    def forward(self, x: Tensor) -> Any:
        return self.net(x.transpose(1, 2))


@pytest.mark.parametrize("method", ["expected_gradients", "grad", "shapley", "exact_shapley", "lime"])
def test_both_layouts_of_time_series_have_the_same_maps(method):
    x, background = rows(2, 7, 2), rows(5, 7, 2, seed=1)
    first = explain.attribute(
        perdure.adapt(Transposed().eval(), Series("nct")),
        x.transpose(1, 2),
        1,
        method,
        background=background.transpose(1, 2),
        samples=1500,
    )
    last = explain.attribute(
        perdure.adapt(Recurrent().eval(), Series("ntc")), x, 1, method, background=background, samples=1500
    )
    assert last.shape == x.shape
    # The draws depend on the values in their order, so sampled maps differ by their noise.
    tolerance = {"grad": 1e-5, "exact_shapley": 1e-5}.get(method, 0.1)
    assert (first.transpose(1, 2) - last).abs().max() <= tolerance * first.abs().max()
    if method == "exact_shapley":  # time steps are the players: both channels together
        assert (last[..., 0] == last[..., 1]).all()
        full, empty = (Recurrent().eval()(value)[:, 1] for value in (x, background.mean(0, keepdim=True)))
        torch.testing.assert_close(last[..., 0].sum(1), (full - empty).detach(), atol=1e-4, rtol=0)


def test_three_dimensions_without_a_layout_are_read_with_a_warning():
    x, background = rows(2, 2, 7), rows(5, 2, 7, seed=1)
    with pytest.warns(explain.LayoutWarning, match=r"reads x of shape \(2, 2, 7\) as \(n, channels, time\)"):
        explain.attribute(Transposed().eval(), x, 1, "shapley", background=background, samples=4)


@pytest.mark.filterwarnings("error")
def test_a_stated_layout_gives_no_warning():
    x, background = rows(2, 2, 7), rows(5, 2, 7, seed=1)
    stated = perdure.adapt(Transposed().eval(), Series("nct"))
    explain.attribute(stated, x, 1, "shapley", background=background, samples=4)
    with pytest.raises(InputError, match="expected time series of three dimensions, 'nct', got shape"):
        explain.attribute(stated, rows(2, 7), 1, "grad")


def test_one_hot_columns_of_a_feature_are_one_player():
    names = ["age", "color=red", "color=green", "color=blue", "price", "odd="]
    table = Table.from_names(names)
    assert table.labels(6).tolist() == [0, 1, 1, 1, 2, 3]
    assert table.features(6) == ("age", "color", "price", "odd")
    x, background = rows(3, 6), rows(8, 6, seed=1)
    net = dense()
    mean = background.mean(0)

    def value(coalitions: Any) -> Any:
        present = torch.from_numpy(coalitions)[:, table.labels(6)]
        return net(torch.where(present, x[0], mean))[:, 2].detach().numpy()

    expected = explain.exact_shapley(value, 4).values
    model = perdure.adapt(net, table)
    maps = explain.attribute(model, x, 2, "exact_shapley", background=background)
    assert maps.shape == x.shape
    np.testing.assert_allclose(maps[0].numpy(), expected[table.labels(6).numpy()], atol=1e-5)
    joined = explain.attribute(model, x, 2, "exact_shapley", background=background, reduce="comparable")
    np.testing.assert_allclose(joined[0].numpy(), expected, atol=1e-5)
    summed = explain.attribute(model, x, 2, "gradient_x_input", reduce="comparable")
    plain = explain.attribute(net, x, 2, "gradient_x_input")
    torch.testing.assert_close(summed[:, 1], plain[:, 1:4].sum(1))
    largest = explain.attribute(model, x, 2, "grad", reduce="comparable")
    torch.testing.assert_close(largest[:, 1], explain.attribute(net, x, 2, "grad")[:, 1:4].abs().amax(1))


def data(seed: int = 0, classes: int = 2) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(200, 6))
    return x, np.digitize(x[:, 0] + 0.3 * x[:, 1], np.linspace(-0.5, 0.5, classes - 1))


MODELS = {
    "predict_proba": lambda: LogisticRegression().fit(*data()),
    "decision_function": lambda: SGDClassifier(loss="hinge", random_state=0).fit(*data()),
    "several classes": lambda: LogisticRegression().fit(*data(classes=3)),
    "gradient boosting": lambda: GradientBoostingClassifier(n_estimators=10, random_state=0).fit(*data()),
    "a function": lambda: lambda x: np.stack([x[:, 0] ** 2, x[:, 1] * x[:, 2]], axis=1),
}


def reference_scores(model: Any, x: Any) -> Any:
    if hasattr(model, "predict_proba"):
        return model.predict_proba(x)[:, 1]
    return model.decision_function(x) if hasattr(model, "decision_function") else model(x)[:, 1]


@pytest.mark.parametrize("make", MODELS.values(), ids=list(MODELS))
def test_models_outside_pytorch_have_the_shapley_values_of_their_scores(make):
    model, (x, _) = make(), data(1)
    mean = x.mean(axis=0)

    def value(coalitions: Any) -> Any:
        return reference_scores(model, np.where(coalitions, x[0], mean).astype(np.float32).astype(np.float64))

    expected = explain.exact_shapley(value, 6).values
    maps = explain.attribute(model, x[:2], 1, "exact_shapley", background=x)
    np.testing.assert_allclose(maps[0], expected, atol=1e-5 * max(1, np.abs(expected).max()))
    for method in ("shapley", "lime"):
        assert np.isfinite(explain.attribute(model, x[:2], 1, method, background=x, samples=20)).all()
    for method in set(METHODS) - {"shapley", "exact_shapley", "lime"}:
        with pytest.raises(InputError, match="is not a PyTorch network and has no gradient; use 'shapley' or 'lime'"):
            explain.attribute(model, x[:2], 1, method, background=x)


def test_the_bias_of_explainers_on_a_model_outside_pytorch():
    x, _ = data(1)
    settings = BiasSettings(methods=["lime", "grad"], samples=300, permutations=20)
    result = measure_bias(perdure.adapt(LogisticRegression().fit(*data())), x[:6], 1, background=x, settings=settings)
    assert "not a PyTorch network" in result.refused["grad"]
    assert result["lime"].overall.mean < result["random"].overall.mean


def test_outputs_belong_to_classes_also_if_a_class_was_never_seen():
    x, y = data(classes=3)
    seen = y != 1
    model = LogisticRegression().fit(x[seen], y[seen])
    scores = FunctionModel(model)(torch.tensor(x[:4]))
    assert scores.shape == (4, 3)
    assert not scores[:, 1].any()
    np.testing.assert_allclose(scores[:, 2].numpy(), model.predict_proba(x[:4])[:, 1], atol=1e-6)
    hinge = SGDClassifier(loss="hinge", random_state=0).fit(x[seen], y[seen])
    assert FunctionModel(hinge)(torch.tensor(x[:40])).argmax(1).tolist() == hinge.predict(x[:40]).tolist()


def test_regression_models_have_one_output():
    x, _ = data()
    model = LinearRegression().fit(x, x @ np.arange(6.0))
    maps = explain.attribute(model, x[:3], 0, "exact_shapley", background=x)
    np.testing.assert_allclose(maps, (x[:3] - x.mean(0)) * np.arange(6.0), atol=1e-4)
    with pytest.raises(InputError, match="expected an output index from 0 to 0, got 1"):
        explain.attribute(model, x[:3], 1, "shapley", background=x)


def test_what_is_not_a_model_is_refused_and_errors_of_a_model_are_one_line():
    with pytest.raises(InputError, match=r"expected a torch.nn.Module, an object with predict_proba .* got a dict"):
        perdure.adapt({})
    model = LogisticRegression().fit(*data())
    with pytest.raises(
        InputError, match=r"LogisticRegression failed on inputs of shape \(\d, 4\) \(ValueError: X has 4"
    ):
        explain.attribute(model, np.zeros((2, 4)), 1, "lime")


def test_an_adapted_model_keeps_the_names_of_its_weights_and_layers():
    net = dense()
    adapted = perdure.adapt(net, Table({"a": [0, 1]}))
    assert list(adapted.state_dict()) == list(net.state_dict())
    adapted.load_state_dict({name: value + 1 for name, value in net.state_dict().items()})
    assert adapted.get_submodule("0") is net[0]  # type: ignore[index]
    assert layer_names(adapted)[net[0]] == "0"  # type: ignore[index]
    again = perdure.adapt(adapted, logits=lambda output: output * 2)
    assert isinstance(again, Adapted)
    assert again.inputs is adapted.inputs
    assert again.model is net
    with pytest.raises(InputError, match=r"layer '0'|no positions"):
        explain.attribute(adapted, rows(2, 6), 1, "gradcam")
    before = copy.deepcopy(net.state_dict())
    explain.attribute(adapted, rows(2, 6), 1, "expected_gradients", background=rows(3, 6), samples=4)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert not net._forward_hooks
    assert not net[0]._forward_hooks  # type: ignore[index]


def test_gradients_go_through_the_embedding_without_leaving_a_hook():
    net = Text().eval()
    explain.attribute(perdure.adapt(net, Tokens(mask=0)), IDS, 1, "expected_gradients", samples=4)
    assert not net.tokens._forward_hooks
    assert not net.tokens._forward_pre_hooks
    assert net.tokens.weight.grad is None


class Items(Dataset[Any]):
    """A Dataset that is not iterable to an end."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index % len(self.items)]


def test_arrays_datasets_and_loaders_hold_the_same_examples():
    x, y = rows(7, 2, 3), torch.arange(7) % 3
    forms = {
        "pair": (x, y),
        "dataset": TensorDataset(x, y),
        "own dataset": Items(list(zip(x, y, strict=True))),
        "loader": DataLoader(TensorDataset(x, y), batch_size=3),
        "dictionaries": DataLoader(
            Items([{"pixels": a, "labels": b} for a, b in zip(x, y, strict=True)]), batch_size=2
        ),
    }
    for name, form in forms.items():
        inputs, labels = labelled_arrays(form)
        np.testing.assert_array_equal(np.asarray(inputs), x.numpy(), err_msg=name)
        np.testing.assert_array_equal(labels, y.numpy(), err_msg=name)
    several = DataLoader(Items([{"a": x[i], "b": y[i], "label": y[i]} for i in range(7)]), batch_size=2)
    inputs, _ = labelled_arrays(several)
    assert {name: array.shape for name, array in inputs.items()} == {"a": (7, 2, 3), "b": (7,)}
    triples, _ = labelled_arrays(TensorDataset(x, x * 2, y))
    assert [array.shape for array in triples] == [(7, 2, 3), (7, 2, 3)]


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        (DataLoader(TensorDataset(rows(4, 2), torch.arange(4)), shuffle=True), "the DataLoader shuffles its examples"),
        (3, "expected a pair .inputs, labels., a Dataset or a DataLoader, got a int"),
        (Items([]), "the Items holds no examples"),
        (Items([1, 2]), r"expected examples \(input, label\), got a int"),
        (Items([{"x": 1}]), "expected one of the keys labels, label, target, targets, y for the label, got x"),
        (Items([(rows(2), 0), (rows(3), 0)]), r"expected examples of one shape, got \(2,\) and \(3,\)"),
        (Items([("text", 0)]), "expected examples of numbers, got type <U4"),
        ((rows(2, 2), ["a", "b"]), "labels of type <U1 and shape .2,.; expected output units"),
    ],
)
def test_unusable_examples_are_refused(examples, message):
    with pytest.raises(InputError, match=message):
        labelled_arrays(examples)
