"""Inputs that are not float arrays of the right shape: half precision, token ids, a wrong width, several inputs."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from perdure import explain, nets
from perdure.audits.bias.measure import BiasSettings, measure_bias
from perdure.base.errors import InputError

METHODS = explain.method_names()
HALF = [torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def _quiet_captum():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def rows(count: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed))


def signal_network() -> nn.Module:
    return nets.build("conv-1d", input_shape=(2, 8), outputs=4, width=4).eval()


def explained(net: nn.Module, x: Any, method: str, background: Any = None, **options: Any) -> Any:
    return explain.attribute(net, x, 1, method, background=background, samples=12, **options)


def refusal(call: Any) -> str:
    """Return the message of the error that a call must raise: one line, without the file of an internal error."""
    with pytest.raises(InputError) as error:
        call()
    assert "\n" not in str(error.value)
    return str(error.value)


def other_functions(net: nn.Module, x: Any, background: Any) -> dict[str, Any]:
    """Return the calls of every other function that runs a network."""
    return {
        "check_network": lambda: explain.check_network(net, x),
        "expected_gradients": lambda: explain.expected_gradients(net, x, 1, background, samples=4),
        "shapley_table": lambda: explain.shapley_table(net, x, 1, background=background, samples=20),
        "shapley_marginals": lambda: explain.shapley_marginals(net, x, 1, background=background, permutations=2),
        "measure_bias": lambda: measure_bias(
            net, x, 1, background=background, settings=BiasSettings(methods=["grad"], permutations=20)
        ),
    }


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_a_half_precision_network_has_the_maps_of_its_float32_copy(method, dtype):
    half = signal_network().to(dtype)
    single = copy.deepcopy(half).float()
    x, background = rows(3, 2, 8).to(dtype), rows(6, 2, 8, seed=1).to(dtype)
    expected = explained(single, x.float(), method, background.float())
    torch.testing.assert_close(explained(half, x.float(), method, background), expected, rtol=0, atol=0)
    assert all(parameter.dtype == dtype for parameter in half.parameters())
    array = explained(half, x.float().numpy(), method, background.float().numpy())
    np.testing.assert_array_equal(array, expected.numpy())
    # Inputs in half precision only round the map, relative to its largest value; a float32 network accepts them too.
    for net in (half, single):
        largest = expected.flatten(1).abs().amax(dim=1)
        if (largest[largest > 0] < torch.finfo(dtype).smallest_normal).any():
            assert f"outside the range of {str(dtype)[6:]}; pass x as float32" in refusal(
                lambda net=net: explained(net, x, method, background)
            )
            continue
        rounded = explained(net, x, method, background)
        assert rounded.dtype == dtype
        torch.testing.assert_close(rounded.float(), expected, rtol=torch.finfo(dtype).eps, atol=1e-7)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_the_other_functions_accept_half_precision(dtype):
    torch.manual_seed(0)
    half = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3)).eval().to(dtype)
    single = copy.deepcopy(half).float()
    x, background = rows(4, 5).to(dtype), rows(6, 5, seed=1).to(dtype)
    assert explain.check_network(half, x) == explain.check_network(single, x.float())
    settings = BiasSettings(methods=["grad", "integrated_gradients", "lrp"], samples=20)
    ours = measure_bias(half, x, "predicted", background=background, settings=settings)
    theirs = measure_bias(single, x.float(), "predicted", background=background.float(), settings=settings)
    assert not ours.refused
    for entry in theirs.explainers:
        assert ours[entry.method].overall.mean == pytest.approx(entry.overall.mean, rel=1e-6)
    axioms = explain.check_network_axioms(half, x[0], 1, "integrated_gradients")
    assert [check.holds for check in axioms.checks] == [True, True, True, True, False]
    table = explain.shapley_table(half, x, 1, background=background, estimator="exact").values
    np.testing.assert_allclose(
        table, explain.shapley_table(single, x, 1, background=background.float(), estimator="exact").values
    )


def test_the_predicted_class_is_that_of_the_half_precision_network():
    net = nn.Linear(2, 2, bias=False)
    # Outputs 256.25 and 256.5 are both 256 in bfloat16, whose network therefore predicts the first class.
    net.weight.data = torch.tensor([[256.0, 0.25], [256.0, 0.5]])
    x = torch.ones(1, 2)
    assert explain.attribute(net, x, "predicted", "grad").tolist() == [[256, 0.5]]
    assert explain.attribute(copy.deepcopy(net).bfloat16(), x, "predicted", "grad").tolist() == [[256, 0.25]]


def test_a_surrounding_autocast_does_not_round_the_maps():
    net, x, background = signal_network(), rows(3, 2, 8), rows(6, 2, 8, seed=1)
    for method in ("grad", "expected_gradients", "shapley", "deepshap"):
        expected = explained(net, x, method, background)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(explained(net, x, method, background), expected)
            assert explain.check_network(net, x) == ()


class Autocast(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 3)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.body(x).float()


class FixedCast(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 3).half()

    def forward(self, x):
        return self.body(x.half())


class Overflows(nn.Module):
    """Finite in float32, infinite in float16."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 3).half()

    def forward(self, x):
        return self.body((x.abs() + 1) * 1e3) * 1e3


class Saturates(Overflows):
    """Finite in both, but different: 60000 + 8 is 60000 in float16."""

    def forward(self, x):
        return self.body((x + 6e4) - 6e4)


@pytest.mark.parametrize("method", ["grad", "shapley", "lrp"])
@pytest.mark.parametrize(
    ("net", "message"),
    [
        (Autocast, "layer 'body': it computes in half precision"),
        (FixedCast, "the network does not run in float32 (mat1 and mat2 must have the same dtype"),
        (Overflows, "example 0: the network's output is NaN or infinite"),
        (Saturates, "outputs in float16 differ from those of its float32 copy by"),
    ],
)
def test_networks_that_cannot_be_explained_in_float32_are_refused(method, net, message):
    torch.manual_seed(0)
    if net in (Overflows, Saturates) and method == "lrp":
        method = "integrated_gradients"
    assert message in refusal(lambda: explained(net().eval(), rows(2, 4), method, baseline="zero"))


@pytest.mark.parametrize("scale", [1e-7, 1e7])
def test_a_map_beyond_the_range_of_float16_is_refused(scale):
    net = nn.Linear(4, 3)
    net.weight.data.mul_(scale)
    x = rows(2, 4)
    assert "is outside the range of float16; pass x as float32" in refusal(lambda: explained(net, x.half(), "grad"))
    torch.testing.assert_close(explained(net, x, "grad"), net.weight[1].expand(2, 4))


class TokenNetwork(nn.Module):
    def __init__(self, casts: bool):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.relu, self.scores = nn.Embedding(20, 8), nn.ReLU(), nn.Linear(8, 3)
        self.casts = casts

    def forward(self, x):
        return self.scores(self.relu(self.embed(x.long() if self.casts else x)).mean(1))


class LooksUp(TokenNetwork):
    """The same network with indexing instead of an embedding layer."""

    def forward(self, x):
        return self.scores(self.relu(self.embed.weight[x.long()]).mean(1))


class OneHot(TokenNetwork):
    def forward(self, x):
        vectors = nn.functional.one_hot(x.long(), 20).float() @ self.embed.weight
        return self.scores(self.relu(vectors).mean(1))


TOKENS = torch.randint(0, 20, (3, 5), generator=torch.Generator().manual_seed(0))
OTHER_TOKENS = torch.randint(0, 20, (6, 5), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("method", METHODS)
def test_token_ids_are_refused_with_the_remedy(method):
    message = refusal(lambda: explained(TokenNetwork(casts=False).eval(), TOKENS, method, OTHER_TOKENS))
    assert "the network takes token ids (integers)" in message
    assert "perdure.adapt(model, perdure.explain.Tokens(mask=...))" in message
    for net in (TokenNetwork(casts=True), LooksUp(casts=True), OneHot(casts=True)):
        for x in (TOKENS, TOKENS.float(), TOKENS.numpy()):
            message = refusal(lambda net=net, x=x: explained(net.eval(), x, method, OTHER_TOKENS))
            assert "token ids" in message
            assert "baseline= the id of the mask or padding token" in message


@pytest.mark.parametrize("method", ["shapley", "exact_shapley", "lime"])
def test_token_ids_with_the_id_of_a_mask_are_explained(method):
    net = TokenNetwork(casts=True).eval()

    def value(coalitions):
        present = torch.from_numpy(coalitions)
        return net(torch.where(present, TOKENS[0], 19))[:, 1].detach().numpy()

    exact = explain.exact_shapley(value, 5).values
    maps = explain.attribute(net, TOKENS, 1, method, baseline=19, samples=400)
    assert maps.dtype == torch.float32
    # LIME's weights are a local regression and only correlate with Shapley values.
    tolerance = 0.35 if method == "lime" else 0.03
    assert np.abs(maps[0].numpy() - exact).max() <= tolerance * np.abs(exact).max()


def test_continuous_inputs_that_become_indices_are_not_tokens():
    class Bins(TokenNetwork):
        def forward(self, x):
            return super().forward(torch.bucketize(x, torch.linspace(-2, 2, 19)))

    net = Bins(casts=True).eval()
    maps = explained(net, rows(2, 5), "exact_shapley", rows(4, 5, seed=1))
    assert maps.abs().sum() > 0


def test_the_other_functions_refuse_token_ids():
    for name, call in other_functions(TokenNetwork(casts=False).eval(), TOKENS, OTHER_TOKENS).items():
        assert "the network takes token ids" in refusal(call), name
    calls = other_functions(TokenNetwork(casts=True).eval(), TOKENS, OTHER_TOKENS)
    findings = calls.pop("check_network")()
    assert "token ids" in findings[0].problem
    assert findings[0].methods == set(METHODS) - {"shapley", "exact_shapley", "lime"}
    for name, call in calls.items():
        assert "token" in refusal(call), name
    for method in ("integrated_gradients", "exact_shapley"):
        message = refusal(lambda m=method: explain.check_network_axioms(TokenNetwork(casts=False), TOKENS[0], 1, m))
        assert "the network takes token ids" in message
    settings = BiasSettings(methods=["lime", "grad"], samples=500, baseline=19)
    result = measure_bias(TokenNetwork(casts=True).eval(), TOKENS, 1, background=OTHER_TOKENS, settings=settings)
    assert "token ids" in result.refused["grad"]
    assert result["lime"].overall.mean < result["random"].overall.mean


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(3, 8), (2, 9), (16,), (2, 4, 4)], ids=str)
def test_a_wrong_shape_is_refused_with_the_shape(method, shape):
    class Strict(nn.Module):
        """A network that flattens its input, so that the width of the sequence matters."""

        def __init__(self):
            super().__init__()
            self.conv, self.relu, self.scores = nn.Conv1d(2, 3, 3), nn.ReLU(), nn.Linear(18, 3)

        def forward(self, x):
            return self.scores(self.relu(self.conv(x)).flatten(1))

    net, x, background = Strict().eval(), rows(2, *shape), rows(4, *shape, seed=1)
    message = refusal(lambda: explained(net, x, method, background))
    assert f"the network does not accept inputs of shape {shape} (" in message
    assert "with the shape of its training inputs" in message


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right, self.relu, self.scores = nn.Linear(4, 8), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)

    def joined(self, left, right):
        return self.scores(self.relu(self.left(left) + self.right(right)))

    def forward(self, left, right):
        return self.joined(left, right)


class Pair(TwoInputs):
    def forward(self, pair):  # type: ignore[override]
        left, right = pair
        return self.joined(left, right)


class Named(TwoInputs):
    def forward(self, inputs):  # type: ignore[override]
        return self.joined(inputs["left"], inputs["right"])


@pytest.mark.parametrize("method", METHODS)
def test_one_array_for_several_inputs_is_refused_with_the_remedy(method):
    left, right = rows(2, 4), rows(2, 4, seed=1)
    x: Any
    for x in (left, [left, right]):
        message = refusal(lambda x=x: explained(TwoInputs().eval(), x, method, rows(3, 4, seed=2)))
        assert message.startswith("the network takes 2 inputs (left, right); pass several inputs as a tuple")
    message = refusal(lambda: explained(Named().eval(), [left, rows(3, 4)], method, rows(3, 4, seed=2)))
    assert message.startswith("x: expected one array, got a list of 2; pass several inputs as a tuple")
    # The batch of two examples looks like the pair of inputs; a single example does not.
    assert "the network does not accept inputs of shape (2, 4)" in refusal(
        lambda: explained(Pair().eval(), [left, right], method)
    )


def test_the_other_functions_refuse_one_array_for_several_inputs_and_a_wrong_width():
    background = rows(6, 4, seed=2)
    for name, call in other_functions(TwoInputs().eval(), rows(2, 4), background).items():
        assert "the network takes 2 inputs (left, right)" in refusal(call), name
    for name, call in other_functions(nn.Linear(5, 2), rows(2, 4), background).items():
        assert "the network does not accept inputs of shape (4,)" in refusal(call), name
    for net, x, message in (
        (TwoInputs().eval(), rows(1, 4)[0], "the network takes 2 inputs"),
        (nn.Linear(5, 2), rows(1, 4)[0], "the network does not accept inputs of shape (4,)"),
        (nn.Linear(4, 2), rows(1, 4)[0] * float("nan"), "contains NaN or infinity"),
    ):
        assert message in refusal(lambda net=net, x=x: explain.check_network_axioms(net, x, 1, "grad"))


def test_the_other_functions_accept_several_inputs():
    x = (rows(2, 4), rows(2, 4, seed=1))
    background = (rows(6, 4, seed=2), rows(6, 4, seed=3))
    calls = other_functions(TwoInputs().eval(), x, background)
    assert calls.pop("check_network")() == ()
    calls.pop("expected_gradients")  # standard errors of several inputs are not implemented
    for name, call in calls.items():
        call()
        assert name


def test_a_wrapped_network_of_two_inputs_is_explained():
    class Wrapped(TwoInputs):
        def forward(self, x):  # type: ignore[override]
            return self.joined(x[:, :4], x[:, 4:])

    net, x = Wrapped().eval(), rows(2, 8)
    maps = explain.attribute(net, x, 1, "integrated_gradients", samples=200)
    difference = net(x)[:, 1] - net(torch.zeros(1, 8))[:, 1]
    torch.testing.assert_close(maps.sum(1), difference.detach(), atol=1e-2, rtol=0)
