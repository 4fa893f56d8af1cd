"""One interface to all explainers: captum and closed forms as oracles, targets, shapes, batches, a network left alone."""

from __future__ import annotations

import copy
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
from torch import Tensor, nn

from perdure import explain, nets
from perdure.base.errors import InputError
from perdure.explain.adapters.fast_copy import ChannelsLast, quick_copy
from perdure.explain.methods.lrp import lrp
from perdure.explain.request import Request

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


def test_deepshap_is_complete_where_captum_alone_is_not():
    """Max-pooling right after an activation: captum loses a rule, measured in docs/networks.md."""
    net, x, background = network()
    expected = net(x)[range(3), TARGET] - net(background)[:, TARGET].mean(0)
    torch.testing.assert_close(explained("deepshap").flatten(1).sum(1), expected.detach(), atol=1e-5, rtol=1e-5)
    theirs = DeepLiftShap(net).attribute(x, background, target=TARGET).flatten(1).sum(1)
    assert (theirs - expected).abs().max() > 1e-2
    torch.testing.assert_close(explained("deepshap", batch_size=4), explained("deepshap"), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "name", ["small-conv", "lenet", "resnet18", "resnet20", "wide-resnet16", "resnet50", "mlp5", "conv-1d"]
)
def test_lrp_with_a_vanishing_epsilon_is_gradient_times_input(name):
    shape = {"mlp5": (10,), "conv-1d": (2, 32)}.get(name, (3, 32, 32) if name in {"lenet", "resnet50"} else (3, 16, 16))
    width = {"resnet18": 2, "wide-resnet16": 1, "resnet50": 2, "resnet20": 2}.get(name)
    net = nets.build(name, input_shape=shape, outputs=4, width=width).double().eval()
    x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    additions = frozenset(key for key, module in net.named_modules() if isinstance(module, nets.Add))
    request = Request(net, x, TARGET, None, 1, 0, None, None, 3)
    plain = explain.attribute(net, x, TARGET, "gradient_x_input")
    torch.testing.assert_close(lrp(request, additions, epsilon=1e-12), plain, atol=1e-6, rtol=1e-5)
    assert not torch.allclose(explain.attribute(net, x, TARGET, "lrp"), plain, rtol=1e-2)


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
        found = explain.attribute(net, x, 1, method, background=background, samples=16)
        torch.testing.assert_close(found, values, msg=method)
    zero = explain.attribute(net, x, 1, "exact_shapley", baseline="zero")
    torch.testing.assert_close(zero, weight * x)
    given = explain.attribute(net, x, 1, "shapley", baseline=np.ones(5), samples=2)
    torch.testing.assert_close(given, weight * (x - 1))
    path = explain.attribute(net, x, 1, "integrated_gradients", baseline="mean", background=background)
    torch.testing.assert_close(path, weight * (x - start))


def test_lime_finds_the_weights_of_an_additive_network():
    """On a linear network the local regression is the network, up to the ridge."""
    weight = torch.zeros(2, 1, 8, 8)
    weight[1, 0, :4, :4], weight[1, 0, 4:, 4:] = 1.0, -2.0

    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(64, 2, bias=False)
            self.layer.weight.data = weight.reshape(2, 64)

        def forward(self, x):
            return self.layer(x.flatten(1))

    quarters = explain.grid((1, 8, 8), 2)
    found = explain.attribute(
        Weighted(), torch.ones(1, 1, 8, 8), 1, "lime", players=quarters, samples=800, reduce="pixels"
    )
    torch.testing.assert_close(found[0, [0, 0, 7, 7], [0, 7, 0, 7]], torch.tensor([16.0, 0, 0, -32]), atol=1.5, rtol=0)
    assert (found[0, :4, :4] == found[0, 0, 0]).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", explain.method_names())
def test_every_kind_of_network_goes_end_to_end(method, kind):
    _, x, _ = network(kind)
    options: dict[str, Any] = {"samples": 8}
    if method in {"exact_shapley", "shapley", "lime"}:
        options["players"] = torch.arange(x[0].numel()).reshape(x[0].shape) % 6
    if method in REFUSED.get(kind, ()):
        with pytest.raises(InputError, match=f"method '{method}'"):
            explained(method, kind, **options)
        return
    found = explained(method, kind, **options)
    assert found.shape == x.shape
    assert found.dtype == x.dtype
    assert found.abs().sum() > 0
    if x.dim() > 2:
        assert explained(method, kind, reduce="pixels", **options).shape == (3, *x.shape[2:])


def test_pixel_maps_are_the_papers():
    net, x, _ = network("residual")
    grad = explained("grad", "residual")
    torch.testing.assert_close(explained("grad", "residual", reduce="pixels"), grad.abs().amax(1))
    product = explained("gradient_x_input", "residual")
    torch.testing.assert_close(explained("gradient_x_input", "residual", reduce="pixels"), product.sum(1))
    values = explained("exact_shapley", "residual", players=explain.grid((3, 8, 8), 2), reduce="pixels")
    cells = values[:, ::4, ::4].flatten(1)
    gain = net(x)[range(3), TARGET] - net(network("residual")[2].mean(0, keepdim=True))[0, TARGET]
    torch.testing.assert_close(cells.sum(1), gain.detach(), atol=1e-4, rtol=1e-4)


def test_pixel_maps_join_the_players_that_meet_at_a_pixel():
    """Colours that play apart are summed; a player that holds two colours of a pixel counts once there."""
    options = {"samples": 4, "baseline": "zero"}
    apart = explained("shapley", "residual", players="features", **options)
    joined = explained("shapley", "residual", players="features", reduce="pixels", **options)
    torch.testing.assert_close(joined, apart.sum(1))
    labels = torch.arange(64).reshape(1, 8, 8) + torch.tensor([0, 64, 0]).reshape(3, 1, 1)
    apart = explained("shapley", "residual", players=labels, **options)
    joined = explained("shapley", "residual", players=labels, reduce="pixels", **options)
    torch.testing.assert_close(joined, apart[:, 0] + apart[:, 1])


def test_targets_by_label_index_and_prediction():
    net, x, _ = network()
    predicted = net(x).argmax(1)
    torch.testing.assert_close(
        explain.attribute(net, x, "predicted", "grad"), explain.attribute(net, x, predicted.numpy(), "grad")
    )
    torch.testing.assert_close(explain.attribute(net, x, 2, "grad"), explain.attribute(net, x, [2, 2, 2], "grad"))


def test_arrays_come_back_as_they_went_in():
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
    whole = explained(method)
    for batch_size in (1, 5):
        torch.testing.assert_close(explained(method, batch_size=batch_size), whole, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("method", explain.method_names())
def test_the_network_is_left_exactly_as_it_was(method):
    net, x, background = network()
    net.body[0].weight.requires_grad_(False)
    net.body[3].weight.grad = torch.ones_like(net.body[3].weight)
    calls = []
    handle = net.head.register_forward_hook(lambda *_: calls.append(1))
    net.body[5].train()  # a ReLU or a pooling: no harm, but it has to stay

    def state() -> tuple[object, ...]:
        hooks = [
            (name, [list(table) for key, table in vars(module).items() if "hooks" in key])
            for name, module in net.named_modules()
        ]
        names = [(name, sorted(vars(module)), module.training) for name, module in net.named_modules()]
        flags = [(name, p.requires_grad, p.grad is None, p._version) for name, p in net.named_parameters()]
        return hooks, names, flags

    before, weights, seed = state(), copy.deepcopy(net.state_dict()), torch.get_rng_state()
    given = x.clone()
    players = torch.arange(64).reshape(1, 8, 8) % 6
    explain.attribute(net, given, TARGET, method, background=background, samples=8, players=players)
    assert state() == before
    assert all(torch.equal(value, weights[name]) for name, value in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), seed)
    assert torch.equal(given, x)
    assert calls
    handle.remove()


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
        # DeepLIFT runs a sample beside its background: twice the rows.
        assert max(rows) <= (8 if method == "deepshap" else 4), method


def test_progress_is_told():
    told: list[tuple[int, int]] = []
    for method in explain.method_names():
        told.clear()
        explained(method, progress=lambda done, total: told.append((done, total)))
        assert told[-1] == (3, 3), method
        assert [done for done, _ in told] == sorted({done for done, _ in told}), method


def test_folded_norms_change_no_output_beyond_1e_5():
    net = nets.build("resnet18", input_shape=(3, 16, 16), outputs=5, width=16)
    x = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    net.train()
    net(x)
    net.eval()
    quick = quick_copy(net, x)
    assert isinstance(quick, ChannelsLast)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in quick.modules())
    assert any(isinstance(module, nn.BatchNorm2d) for module in net.modules())
    assert (quick(x) - net(x)).abs().max() <= 1e-5


def test_a_fold_that_would_change_the_output_is_not_used():
    class TwoReaders(nn.Module):
        """The convolution's output is also used past the norm, so folding the norm into it would be wrong."""

        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.head = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Linear(3, 2)
            self.norm.running_mean = torch.ones(3)

        def forward(self, x):
            h = self.conv(x)
            return self.head((self.norm(h) + h).mean((2, 3)))

    net = TwoReaders().eval()
    x = torch.randn(4, 2, 6, 6)
    quick = quick_copy(net, x)
    assert any(isinstance(module, nn.BatchNorm2d) for module in quick.modules())
    torch.testing.assert_close(quick(x), net(x))


def test_nan_and_infinity_are_reported_with_the_samples_index():
    net, x, _ = network()
    broken = x.clone()
    broken[2, 0, 0, 0] = torch.nan
    with pytest.raises(InputError, match="x: sample 2 holds NaN"):
        explain.attribute(net, broken, 1, "grad")

    class Explodes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, inputs):
            return self.layer(inputs) / (inputs[:, :1] - 1)

    rows = torch.tensor([[0.0, 1.0], [1.0, 1.0]])
    for index, some in ((1, rows), (0, rows.flip(0)), (4, torch.cat([rows[[0, 0, 0]], rows]))):
        with pytest.raises(InputError, match=f"sample {index}: the network's output is NaN or infinite"):
            explain.attribute(Explodes(), some, 1, "grad")
    with pytest.raises(InputError, match="sample 0: the network's output for a coalition"):
        explain.attribute(Explodes(), torch.tensor([[0.0, 3.0]]), 1, "shapley", baseline=[1.0, 0.0], samples=4)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"method": "gradd"}, "did you mean 'grad'"),
        ({"method": "InputXGradient"}, "here it is 'gradient_x_input'"),
        ({"method": "deep_lift_shap"}, "here it is 'deepshap'"),
        ({"method": "expected_gradients", "background": None}, "needs a background"),
        ({"method": "deepshap", "background": None}, "needs a background"),
        ({"method": "shapley", "background": None}, "baseline 'mean' needs a background"),
        ({"method": "exact_shapley"}, "64 players, at most 20"),
        ({"target": 4}, "sample 0 asks for output 4, the network has outputs 0 to 3"),
        ({"target": [0, 1]}, "found shape (2,) for 3 sample(s)"),
        ({"target": "best"}, "expected 'predicted'"),
        ({"target": 0.5}, "whole numbers"),
        ({"samples": 0}, "samples: found 0"),
        ({"seed": -1}, "seed: found -1"),
        ({"batch_size": 0}, "batch_size: found 0"),
        ({"reduce": "mean"}, "reduce: found 'mean'"),
        ({"method": "gradcam", "layer": "body.71"}, "did you mean 'body.7'"),
        ({"method": "gradcam", "layer": nn.ReLU()}, "no part of the network"),
        ({"method": "gradcam", "layer": "head"}, "puts out shape"),
        ({"background": torch.zeros(3, 1, 9, 9)}, "background: its samples have shape (1, 9, 9)"),
        ({"method": "shapley", "baseline": "black"}, "unknown word 'black'"),
        ({"method": "shapley", "baseline": torch.zeros(7)}, "baseline: found shape (7,)"),
        ({"method": "shapley", "players": "pixel"}, "did you mean 'pixels'"),
        ({"method": "shapley", "players": torch.zeros(2, 2, dtype=torch.int64)}, "players: they have shape (2, 2)"),
        ({"method": "shapley", "estimator": "castor"}, "did you mean 'castro'"),
        ({"x": torch.zeros(8)}, "expected real numbers with a batch dimension"),
    ],
)
def test_mistakes_are_told_in_one_line(options, says):
    net, x, background = network()
    settings = {"x": x, "target": 1, "background": background, "samples": 4} | options
    with pytest.raises(InputError, match=r".*") as told:
        explain.attribute(net, settings.pop("x"), settings.pop("target"), **settings)
    assert says in str(told.value)
    assert "\n" not in str(told.value)


def test_a_blurred_baseline_keeps_the_mean_and_takes_the_edges():
    from perdure.explain.baselines import blurred

    image = torch.zeros(1, 1, 32, 32)
    image[..., 16:] = 1.0
    smooth = blurred(image)
    assert smooth.mean() == pytest.approx(0.5, abs=0.02)
    assert smooth[0, 0, 16].diff().abs().max() < 0.2
