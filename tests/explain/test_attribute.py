"""`attribute`: captum and closed forms as references, targets, shapes, batches, and an unchanged network."""

from __future__ import annotations

import copy
import importlib
import math
import re
import warnings
from typing import Any, cast

import numpy as np
import pytest
import torch
from captum.attr import (
    DeepLiftShap,
    GuidedBackprop,
    InputXGradient,
    IntegratedGradients,
    LayerGradCam,
    Saliency,
)
from sklearn.linear_model import Ridge
from torch import Tensor, nn

from perdure import explain, nets
from perdure.base.errors import InputError
from perdure.explain.adapters.models import ChannelsLast, fast_model_copy
from perdure.explain.attribute import prepared_request
from perdure.explain.baselines import blurred
from perdure.explain.methods.deepshap import _check_complete as check_complete

TARGET = torch.tensor([0, 2, 1])
KINDS = {
    "convolutional": ("small-conv", (1, 8, 8), 3),
    "residual": ("resnet18", (3, 8, 8), 2),
    "transformer": ("vit-small", (3, 8, 8), 16),
    "table": ("mlp-table", (10,), 16),
    "signal": ("conv-1d", (2, 16), 4),
}
# docs/explainers.md has the same table with the reasons.
REFUSED = {
    "transformer": {"guided_backprop", "lrp", "deepshap"},
    "table": {"gradcam"},
}


def network(kind: str = "convolutional") -> tuple[Any, Tensor, Tensor]:
    name, shape, width = KINDS[kind]
    net = nets.build(name, input_shape=shape, outputs=4, width=width).eval()
    generator = torch.Generator().manual_seed(0)
    return net, torch.randn(3, *shape, generator=generator), torch.randn(6, *shape, generator=generator)


def explained(method: str, kind: str = "convolutional", **options) -> Any:
    net, x, background = network(kind)
    if method in {"shapley", "exact_shapley"} and x.dim() == 4:
        options.setdefault("players", torch.arange(x[0].numel()).reshape(x[0].shape) % 6)
    settings: dict[str, Any] = {"background": background, "samples": 12} | options
    return explain.attribute(net, x, TARGET, method, **settings)


@pytest.fixture(autouse=True)
def _quiet_captum():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_captum_agrees():
    net, x, _ = network()
    plain = {
        "grad": Saliency(net).attribute(x.clone(), target=TARGET, abs=False),
        "gradient_x_input": InputXGradient(net).attribute(x.clone(), target=TARGET),
        "guided_backprop": GuidedBackprop(net).attribute(x.clone(), target=TARGET),
        "integrated_gradients": IntegratedGradients(net).attribute(x.clone(), target=TARGET, n_steps=12).float(),
    }
    for method, theirs in plain.items():
        torch.testing.assert_close(explained(method), theirs.detach(), atol=1e-6, rtol=1e-5)
    small = LayerGradCam(net, net.body[7]).attribute(x, target=TARGET, relu_attributions=True)
    ours = explained("gradcam", layer="body.7", reduce="pixels")
    enlarged = nn.functional.interpolate(small, size=(8, 8), mode="bilinear", align_corners=False)
    torch.testing.assert_close(ours, enlarged[:, 0].detach())
    torch.testing.assert_close(explained("gradcam", layer=None), explained("gradcam", layer="body.7"))
    residual, images, others = network("residual")
    theirs = DeepLiftShap(residual).attribute(images, others, target=TARGET).detach()
    torch.testing.assert_close(explained("deepshap", "residual"), theirs, atol=1e-5, rtol=1e-4)


def test_deepshap_is_complete_where_captum_is_not():
    """Max-pooling directly after an activation: captum loses a rule (measured in docs/networks.md)."""
    net, x, background = network()
    expected = net(x)[range(3), TARGET] - net(background)[:, TARGET].mean(0)
    torch.testing.assert_close(explained("deepshap").flatten(1).sum(1), expected.detach(), atol=1e-5, rtol=1e-5)
    theirs = DeepLiftShap(net).attribute(x, background, target=TARGET).flatten(1).sum(1)
    assert (theirs - expected).abs().max() > 1e-2
    torch.testing.assert_close(explained("deepshap", batch_size=4), explained("deepshap"), atol=1e-5, rtol=0)


def test_deepshap_refuses_maps_that_do_not_sum_to_the_difference_of_outputs():
    net, x, background = network()
    maps = explained("deepshap")
    with prepared_request(net, x, TARGET, "deepshap", background=background) as request:
        check_complete(request, x, TARGET, background, maps, 0)
        maps[1, 0, 0, 0] += 0.02 * net(x)[1, 2].abs().detach() + 0.02 * maps[1].sum().abs()
        with pytest.raises(InputError, match="method 'deepshap', example 1: attributions sum to"):
            check_complete(request, x, TARGET, background, maps, 0)


@pytest.mark.parametrize(
    "name", ["small-conv", "lenet", "resnet18", "resnet20", "wide-resnet16", "resnet50", "mlp5", "conv-1d"]
)
def test_lrp_with_a_vanishing_epsilon_is_gradient_times_input(name):
    shape = {"mlp5": (10,), "conv-1d": (2, 32)}.get(name, (3, 32, 32) if name in {"lenet", "resnet50"} else (3, 16, 16))
    width = {"resnet18": 2, "wide-resnet16": 1, "resnet50": 2, "resnet20": 2}.get(name)
    net = nets.build(name, input_shape=shape, outputs=4, width=width).double().eval()
    x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    product = explain.attribute(net, x, TARGET, "gradient_x_input")
    relevance = explain.attribute(net, x, TARGET, "lrp", options={"epsilon": 1e-12})
    torch.testing.assert_close(relevance, product, atol=1e-6, rtol=1e-5)
    assert not torch.allclose(explain.attribute(net, x, TARGET, "lrp"), product, rtol=1e-2)


def test_lrp_epsilon_rule_by_hand():
    """R_i = sum_j x_i w_ji / (z_j + eps sign z_j) R_j with eps = 1, two layers."""
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double().eval()
    x = torch.randn(1, 3, dtype=torch.float64)
    first, second = cast(nn.Linear, net[0]), cast(nn.Linear, net[2])
    hidden = net[1](first(x))
    relevance = net(x)[0, 1]
    upper = second.weight[1] * hidden * relevance / (relevance + relevance.sign())
    z = first(x)[0]
    lower = (first.weight * x) * (upper[0] / (z + torch.where(z >= 0, 1.0, -1.0)))[:, None]
    torch.testing.assert_close(explain.attribute(net, x, 1, "lrp")[0], lower.sum(0).detach())


def test_lrp_pooling_keeps_the_relevance():
    """Epsilon absorbs relevance in layers with weights only: average pooling divides it in proportion to its inputs."""
    net = nn.Sequential(nn.AvgPool1d(2), nn.Flatten(), nn.Linear(2, 2)).double().eval()
    x = torch.tensor([[[1.0, 3.0, 2.0, 2.0]]], dtype=torch.float64)
    output = net(x)[0, 1]
    pooled = cast(nn.Linear, net[2]).weight[1] * 2.0 * output / (output + output.sign())
    expected = pooled.repeat_interleave(2) * torch.tensor([0.25, 0.75, 0.5, 0.5])
    torch.testing.assert_close(explain.attribute(net, x, 1, "lrp")[0, 0], expected.detach())


def test_closed_forms_on_a_linear_network():
    net = nn.Linear(5, 3).double()
    x, background = torch.randn(2, 5).double(), torch.randn(8, 5).double()
    weight, start = net.weight[1].detach(), background.mean(0)
    expected = {
        "grad": weight.expand(2, 5),
        "gradient_x_input": weight * x,
        "integrated_gradients": weight * x,
        "expected_gradients": weight * (x - start),
        "deepshap": weight * (x - start),
        "shapley": weight * (x - start),
        "exact_shapley": weight * (x - start),
    }
    for method, values in expected.items():
        maps = explain.attribute(net, x, 1, method, background=background, samples=16)
        torch.testing.assert_close(maps, values, msg=method)
    zero = explain.attribute(net, x, 1, "exact_shapley", baseline="zero")
    torch.testing.assert_close(zero, weight * x)
    from_ones = explain.attribute(net, x, 1, "shapley", baseline=np.ones(5), samples=2)
    torch.testing.assert_close(from_ones, weight * (x - 1))
    path = explain.attribute(net, x, 1, "integrated_gradients", baseline="mean", background=background)
    torch.testing.assert_close(path, weight * (x - start))


def test_lime_finds_the_weights_of_an_additive_network():
    """On a linear network the local regression equals the network, up to the ridge penalty."""
    weight = torch.zeros(2, 1, 8, 8)
    weight[1, 0, :4, :4], weight[1, 0, 4:, 4:] = 1.0, -2.0

    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(64, 2, bias=False)
            self.layer.weight.data = weight.reshape(2, 64)

        def forward(self, x):
            return self.layer(x.flatten(1))

    quarters = explain.grid_players((1, 8, 8), 2)
    maps = explain.attribute(
        Weighted(), torch.ones(1, 1, 8, 8), 1, "lime", players=quarters, samples=800, reduce="pixels"
    )
    torch.testing.assert_close(maps[0, [0, 0, 7, 7], [0, 7, 0, 7]], torch.tensor([16.0, 0, 0, -32]), atol=1.5, rtol=0)
    assert (maps[0, :4, :4] == maps[0, 0, 0]).all()


def test_lime_is_the_ridge_regression_of_its_authors_on_the_drawn_coalitions():
    """Weights sqrt(exp(-d^2 / .25^2)) of the cosine distance d to the full coalition, and a ridge penalty of 1."""
    drawn: list[Tensor] = []

    class Interactions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, x):
            drawn.append(x.detach().clone())
            return torch.stack([3 * x[:, 0] * x[:, 1] + x[:, 2] - 2 * x[:, 3] * x[:, 0], x[:, 0]], dim=1) * self.scale

    net = Interactions()
    maps = explain.attribute(net, torch.ones(1, 4), 0, "lime", samples=40)
    present = torch.cat(drawn)[-40:]  # an absent player takes the baseline 0
    distance = 1 - present.mean(1).sqrt().numpy()
    reference = Ridge(alpha=1.0).fit(
        present, net(present)[:, 0].detach(), sample_weight=np.sqrt(np.exp(-(distance**2) / 0.25**2))
    )
    np.testing.assert_allclose(maps[0], reference.coef_, rtol=1e-4)


def test_lime_masks_with_the_mean_of_the_background_or_zero():
    net, x, background = network("table")
    options: dict[str, Any] = {"samples": 20}
    zero, mean = (
        explain.attribute(net, x, 1, "lime", baseline=baseline, background=background, **options)
        for baseline in ("zero", "mean")
    )
    torch.testing.assert_close(explain.attribute(net, x, 1, "lime", **options), zero)
    torch.testing.assert_close(explain.attribute(net, x, 1, "lime", background=background, **options), mean)
    assert not torch.allclose(zero, mean)


@pytest.mark.parametrize("method", ["lime", "shapley"])
def test_draws_do_not_depend_on_the_order_of_the_examples(method):
    net, x, _ = network("table")
    maps = explain.attribute(net, x, 1, method, baseline="zero", samples=8)
    backwards = explain.attribute(net, x.flip(0), 1, method, baseline="zero", samples=8)
    torch.testing.assert_close(backwards.flip(0), maps)


@pytest.mark.parametrize("method", ["expected_gradients", "lime", "shapley"])
def test_maps_for_several_seeds_are_those_of_single_calls_and_the_network_is_prepared_once(method, monkeypatch):
    net, x, background = network("table")
    settings: dict[str, Any] = {"method": method, "background": background, "samples": 12}
    expected = [explain.attribute(net, x, TARGET, seed=seed, **settings) for seed in (4, 5)]
    inspected: list[Any] = []
    copied: list[Any] = []
    module = importlib.import_module("perdure.explain.attribute")
    monkeypatch.setattr(module, "inspect_network", counted(module.inspect_network, inspected))
    module = importlib.import_module("perdure.explain.methods.expected_gradients")
    monkeypatch.setattr(module, "fast_model_copy", counted(module.fast_model_copy, copied))
    maps = explain.attribute_for_seeds(net, x, TARGET, (4, 5), **settings)
    assert all(torch.equal(first, second) for first, second in zip(maps, expected, strict=True))
    assert not torch.equal(*maps)
    assert len(inspected) == 1
    assert len(copied) == (method == "expected_gradients")


def counted(function, calls):
    def wrapper(*arguments, **options):
        calls.append(arguments)
        return function(*arguments, **options)

    return wrapper


def test_integrated_gradients_keep_the_baseline_of_each_example_in_batches():
    net = nn.Linear(5, 3)
    x, starts = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(0))
    maps = explain.attribute(net, x, 1, "integrated_gradients", baseline=starts, samples=4, batch_size=4)
    torch.testing.assert_close(maps, (net.weight[1] * (x - starts)).detach())


def test_the_default_layer_of_gradcam_has_more_than_one_position():
    torch.manual_seed(0)
    squeeze = [nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 6, 1), nn.Flatten(), nn.Linear(6, 3)]
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), *squeeze).eval()
    x = torch.randn(2, 1, 8, 8)
    default = explain.attribute(net, x, 1, "gradcam")
    torch.testing.assert_close(default, explain.attribute(net, x, 1, "gradcam", layer="1"))
    assert default.std() > 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", explain.method_names())
def test_each_method_explains_or_refuses_each_kind_of_network(method, kind):
    _, x, _ = network(kind)
    options: dict[str, Any] = {"samples": 8}
    if method in {"exact_shapley", "shapley", "lime"}:
        options["players"] = torch.arange(x[0].numel()).reshape(x[0].shape) % 6
    if method in REFUSED.get(kind, ()):
        with pytest.raises(InputError, match=f"method '{method}'"):
            explained(method, kind, **options)
        return
    maps = explained(method, kind, **options)
    assert maps.shape == x.shape
    assert maps.dtype == x.dtype
    assert maps.abs().sum() > 0
    if x.dim() > 2:
        assert explained(method, kind, reduce="pixels", **options).shape == (3, *x.shape[2:])


def test_pixel_maps_follow_the_bias_paper():
    net, x, _ = network("residual")
    grad = explained("grad", "residual")
    torch.testing.assert_close(explained("grad", "residual", reduce="pixels"), grad.abs().amax(1))
    product = explained("gradient_x_input", "residual")
    torch.testing.assert_close(explained("gradient_x_input", "residual", reduce="pixels"), product.sum(1))
    values = explained("exact_shapley", "residual", players=explain.grid_players((3, 8, 8), 2), reduce="pixels")
    cells = values[:, ::4, ::4].flatten(1)
    gain = net(x)[range(3), TARGET] - net(network("residual")[2].mean(0, keepdim=True))[0, TARGET]
    torch.testing.assert_close(cells.sum(1), gain.detach(), atol=1e-4, rtol=1e-4)


def test_pixel_maps_sum_the_players_at_a_pixel():
    """Channels that are separate players are summed; a player with two channels of a pixel counts once."""
    options = {"samples": 4, "baseline": "zero"}
    apart = explained("shapley", "residual", players="features", **options)
    joined = explained("shapley", "residual", players="features", reduce="pixels", **options)
    torch.testing.assert_close(joined, apart.sum(1))
    labels = torch.arange(64).reshape(1, 8, 8) + torch.tensor([0, 64, 0]).reshape(3, 1, 1)
    apart = explained("shapley", "residual", players=labels, **options)
    joined = explained("shapley", "residual", players=labels, reduce="pixels", **options)
    torch.testing.assert_close(joined, apart[:, 0] + apart[:, 1])


def test_target_is_an_index_one_per_example_or_the_prediction():
    net, x, _ = network()
    predicted = net(x).argmax(1)
    torch.testing.assert_close(
        explain.attribute(net, x, "predicted", "grad"), explain.attribute(net, x, predicted.numpy(), "grad")
    )
    torch.testing.assert_close(explain.attribute(net, x, 2, "grad"), explain.attribute(net, x, [2, 2, 2], "grad"))


def test_maps_have_the_array_type_of_the_input():
    net, x, background = network()
    tensor = explain.attribute(net, x, 1, background=background, samples=12)
    array = explain.attribute(net, x.numpy(), 1, background=background.numpy(), samples=12)
    assert isinstance(array, np.ndarray)
    np.testing.assert_array_equal(array, tensor.numpy())
    assert explain.attribute(net, x.double(), 1, "grad").dtype == torch.float64
    with torch.inference_mode():
        inside = explain.attribute(net, x.clone(), 1, background=background.clone(), samples=12)
    torch.testing.assert_close(inside, tensor)


@pytest.mark.parametrize("method", explain.method_names())
def test_results_do_not_depend_on_the_batch_size(method):
    expected = explained(method)
    for batch_size in (1, 5):
        torch.testing.assert_close(explained(method, batch_size=batch_size), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("method", explain.method_names())
def test_the_network_is_unchanged(method):
    net, x, background = network()
    net.body[0].weight.requires_grad_(False)
    net.body[3].weight.grad = torch.ones_like(net.body[3].weight)
    calls = []
    handle = net.head.register_forward_hook(lambda *_: calls.append(1))
    net.body[5].train()  # harmless for a ReLU or pooling layer, but must be preserved

    def state() -> tuple[object, ...]:
        hooks = [
            (name, [list(table) for key, table in vars(module).items() if "hooks" in key])
            for name, module in net.named_modules()
        ]
        names = [(name, sorted(vars(module)), module.training) for name, module in net.named_modules()]
        flags = [(name, p.requires_grad, p.grad is None, p._version) for name, p in net.named_parameters()]
        return hooks, names, flags

    before, weights, seed = state(), copy.deepcopy(net.state_dict()), torch.get_rng_state()
    inputs = x.clone()
    players = torch.arange(64).reshape(1, 8, 8) % 6
    explain.attribute(net, inputs, TARGET, method, background=background, samples=8, players=players)
    assert state() == before
    assert all(torch.equal(value, weights[name]) for name, value in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), seed)
    assert torch.equal(inputs, x)
    assert calls
    handle.remove()


class Centered(nn.Module):
    """Subtracts 1/2 from its input, in place or not."""

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.in_place = in_place
        self.layers = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(16, 3))

    def forward(self, x):
        return self.layers(x.sub_(0.5) if self.in_place else x - 0.5)


IN_PLACE_METHODS = [name for name in explain.method_names() if name not in {"deepshap", "guided_backprop", "lrp"}]


@pytest.mark.parametrize("method", [*IN_PLACE_METHODS, "gradient estimator"])
def test_a_network_may_write_into_its_input(method):
    x, background = torch.randn(2, 3, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    before = x.clone()
    options: dict[str, Any] = {"background": background, "samples": 12}
    if method in {"exact_shapley", "shapley", "lime"}:
        options["players"] = explain.grid_players((1, 4, 4), 2)
    if method == "gradient estimator":
        method, options = "shapley", options | {"samples": 30, "options": {"estimator": "gradient"}}
    maps, expected = (explain.attribute(Centered(in_place), x, 1, method, **options) for in_place in (True, False))
    torch.testing.assert_close(maps, expected)
    assert torch.equal(x, before)


@pytest.mark.parametrize("method", ["deepshap", "lrp"])
def test_methods_with_rules_explain_a_copy_of_a_network_that_writes_into_its_input(method):
    x = torch.randn(3, 1, 4, 4)
    before = x.clone()
    torch.manual_seed(0)
    in_place = Centered(True)
    torch.manual_seed(0)
    expected = explain.attribute(Centered(False), x, 1, method, background=x)
    torch.testing.assert_close(explain.attribute(in_place, x, 1, method, background=x), expected)
    assert torch.equal(x, before)


def test_memory_is_bounded_by_the_batch_size():
    rows: list[int] = []

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))

        def forward(self, x):
            rows.append(len(x))
            return self.layers(x)

    x, background = torch.randn(9, 6), torch.randn(11, 6)
    for method in set(explain.method_names()) - {"gradcam", "lrp"}:
        rows.clear()
        explain.attribute(Counting(), x, 1, method, background=background, samples=40, batch_size=4)
        # DeepLIFT runs an example together with its background: twice the rows.
        assert max(rows) <= (8 if method == "deepshap" else 4), method


def test_progress_is_reported():
    reports: list[tuple[int, int]] = []
    for method in explain.method_names():
        reports.clear()
        explained(method, progress=lambda done, total: reports.append((done, total)))
        assert reports[-1] == (3, 3), method
        assert [done for done, _ in reports] == sorted({done for done, _ in reports}), method


def test_folded_norms_change_no_output_beyond_1e_5():
    net = nets.build("resnet18", input_shape=(3, 16, 16), outputs=5, width=16)
    x = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    net.train()
    net(x)
    net.eval()
    fast = fast_model_copy(net, x)
    assert isinstance(fast, ChannelsLast)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in fast.modules())
    assert any(isinstance(module, nn.BatchNorm2d) for module in net.modules())
    assert (fast(x) - net(x)).abs().max() <= 1e-5


def test_a_fold_that_would_change_the_output_is_not_used():
    class TwoReaders(nn.Module):
        """The convolution's output is also used without the norm, so folding the norm would be wrong."""

        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.head = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Linear(3, 2)
            self.norm.running_mean = torch.ones(3)

        def forward(self, x):
            h = self.conv(x)
            return self.head((self.norm(h) + h).mean((2, 3)))

    net = TwoReaders().eval()
    x = torch.randn(4, 2, 6, 6)
    fast = fast_model_copy(net, x)
    assert any(isinstance(module, nn.BatchNorm2d) for module in fast.modules())
    torch.testing.assert_close(fast(x), net(x))


def test_nan_and_infinity_are_reported_with_the_index_of_the_example():
    net, x, _ = network()
    broken = x.clone()
    broken[2, 0, 0, 0] = torch.nan
    with pytest.raises(InputError, match="x: example 2 contains NaN"):
        explain.attribute(net, broken, 1, "grad")

    class Explodes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, inputs):
            return self.layer(inputs) / (inputs[:, :1] - 1)

    rows = torch.tensor([[0.0, 1.0], [1.0, 1.0]])
    for index, batch in ((1, rows), (0, rows.flip(0)), (4, torch.cat([rows[[0, 0, 0]], rows]))):
        with pytest.raises(InputError, match=f"example {index}: the network's output is NaN or infinite"):
            explain.attribute(Explodes(), batch, 1, "grad")
    with pytest.raises(InputError, match="example 0: the network's output for a coalition"):
        explain.attribute(
            Explodes(), torch.tensor([[0.0, 3.0]]), 1, "shapley", baseline=np.array([1.0, 0.0]), samples=4
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "gradd"}, "did you mean 'grad'"),
        ({"method": "InputXGradient"}, "perdure calls it 'gradient_x_input'"),
        ({"method": "deep_lift_shap"}, "perdure calls it 'deepshap'"),
        ({"method": "expected_gradients", "background": None}, "needs a background"),
        ({"method": "deepshap", "background": None}, "needs a background"),
        ({"method": "shapley", "background": None}, "baseline 'mean' needs a background"),
        ({"method": "exact_shapley"}, "expected at most 20 players, got 64"),
        ({"target": 4}, "example 0: expected an output index from 0 to 3, got 4"),
        ({"target": [0, 1]}, "one for each of the 3 examples, got an array of shape (2,)"),
        ({"target": "best"}, "expected 'predicted'"),
        ({"target": 0.5}, "expected output indices (integers)"),
        ({"samples": 0}, "samples: expected an integer of at least 1, got 0"),
        ({"seed": -1}, "seed: expected an integer of at least 0, got -1"),
        ({"batch_size": 0}, "batch_size: expected a positive integer or None, got 0"),
        ({"reduce": "mean"}, "reduce: expected None, 'pixels' or 'comparable', got 'mean'"),
        ({"method": "gradcam", "layer": "body.71"}, "did you mean 'body.7'"),
        ({"method": "gradcam", "layer": nn.ReLU()}, "is not part of the network"),
        ({"method": "gradcam", "layer": "head"}, "layer 'head' outputs shape (2, 4), expected a map"),
        (
            {"background": torch.zeros(3, 1, 9, 9)},
            "background: expected examples of shape (1, 8, 8) as in x, got (1, 9, 9)",
        ),
        ({"method": "shapley", "baseline": "black"}, "baseline: unknown name 'black'"),
        (
            {"method": "shapley", "baseline": torch.zeros(7)},
            "or an array of shape (1, 8, 8) or (3, 1, 8, 8), got shape (7,)",
        ),
        ({"method": "shapley", "players": "pixel"}, "did you mean 'pixels'"),
        (
            {"method": "shapley", "players": torch.zeros(2, 2, dtype=torch.int64)},
            "players: expected labels of shape (1, 8, 8), the shape of one example, got (2, 2)",
        ),
        ({"method": "shapley", "options": {"estimator": "castor"}}, "did you mean 'castro'"),
        ({"x": torch.zeros(8)}, "expected real numbers with a batch dimension"),
    ],
)
def test_invalid_arguments_raise_a_message_of_one_line(arguments, message):
    net, x, background = network()
    settings = {"x": x, "target": 1, "background": background, "samples": 4} | arguments
    with pytest.raises(InputError, match=re.escape(message)) as error:
        explain.attribute(net, settings.pop("x"), settings.pop("target"), **settings)
    assert "\n" not in str(error.value)


def test_a_blurred_baseline_keeps_the_mean_and_smooths_edges():
    image = torch.zeros(1, 1, 32, 32)
    image[..., 16:] = 1.0
    smooth = blurred(image)
    assert smooth.mean() == pytest.approx(0.5, abs=0.02)
    assert smooth[0, 0, 16].diff().abs().max() < 0.2


def test_the_blur_is_gaussian_in_each_channel_with_a_tenth_of_the_longest_side():
    point = torch.zeros(1, 2, 61, 41)
    point[0, 0, 30, 20] = 1.0
    smooth = blurred(point)
    # 6.1 pixels along height and width: 6 pixels from the point the value falls to exp(-(6 / 6.1)^2 / 2).
    expected = math.exp(-((6 / 6.1) ** 2) / 2)
    for neighbor in (smooth[0, 0, 36, 20], smooth[0, 0, 30, 26]):
        assert neighbor / smooth[0, 0, 30, 20] == pytest.approx(expected, rel=1e-4)
    assert (smooth[0, 1] == 0).all()


def test_players_as_an_array_of_labels_can_be_joined_over_channels():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(2 * 3 * 3, 2)).eval()
    x = torch.randn(2, 2, 3, 3)
    labels = np.arange(9).reshape(1, 3, 3).repeat(2, axis=0)
    by_labels, by_pixels = (
        explain.attribute(net, x, 1, "shapley", samples=4, baseline="zero", reduce="pixels", players=players)
        for players in (labels, "pixels")
    )
    torch.testing.assert_close(by_labels, by_pixels)
