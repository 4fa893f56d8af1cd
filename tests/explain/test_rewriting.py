"""Networks as people write them are explained as if every operation were a module; the rest is refused."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perdure import explain
from perdure.base.errors import InputError
from perdure.explain.attribute import prepared_request
from perdure.explain.checks import rewriting
from perdure.explain.checks.network import Function, Inspection, inspect_network
from perdure.explain.checks.rewriting import rewritten_network, suitable_network
from perdure.explain.explainer import get_explainer
from perdure.explain.methods.gradcam import gradcam
from tests.helpers.network_styles import IMAGE, RULES, STYLES, FunctionalLeNet, OwnParameters, ResNet
from tests.helpers.relevance import layerwise_relevance

GRADIENT_METHODS = ("grad", "gradient_x_input", "integrated_gradients", "expected_gradients")
CASES = [(name, method) for name, style in STYLES.items() for method in sorted(style.methods)]


def suitable(net: nn.Module, method: str, x: Tensor) -> Inspection:
    return suitable_network(method, get_explainer(method).requirement({}), inspect_network(net, x), x)


def explained(net: nn.Module, x: Tensor, method: str, background: Tensor | None = None, **options: Any) -> Tensor:
    model = suitable(net, method, x).model
    return explain.attribute(model, x, 1, method, background=background, options=options)


def rewritten(net: nn.Module, x: Tensor) -> nn.Module:
    return rewritten_network(inspect_network(net, x), x).model


def assert_same(values: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    """Compare relative to the largest value."""
    gap = float((values - expected).detach().abs().max() / expected.detach().abs().max())
    assert gap <= tolerance, gap


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(8, 8), nn.Linear(8, 3)


# The maps of a network do not depend on how it is written.


@pytest.mark.parametrize(("name", "method"), CASES)
def test_maps_are_those_of_the_same_network_written_with_modules(name, method):
    style = STYLES[name]
    written, modular = style.networks()
    x, background = style.inputs(4), style.inputs(5, seed=2)
    maps = explained(written, x, method, background)
    assert_same(maps, explain.attribute(modular, x, 1, method, background=background))
    assert maps.abs().max() > 0
    assert_same(explain.attribute(rewritten(written, x), x, 1, method, background=background), maps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", STYLES)
def test_deepshap_is_complete(name, dtype):
    style = STYLES[name]
    net = style.networks()[0].to(dtype)
    x, background = style.inputs(4).to(dtype), style.inputs(5, seed=2).to(dtype)
    maps = explained(net, x, "deepshap", background)
    assert maps.dtype == dtype
    expected = net(x)[:, 1] - net(background)[:, 1].mean()
    assert_same(maps.flatten(1).sum(1), expected, 1e-5 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("epsilon", [1.0, 1e-3])
@pytest.mark.parametrize("name", [name for name, method in CASES if method == "lrp"])
def test_lrp_is_that_of_the_papers_and_conserves_relevance(name, epsilon):
    style = STYLES[name]
    written, modular = style.networks()
    x = style.inputs(4)
    maps = explained(written, x, "lrp", epsilon=epsilon)
    reference = layerwise_relevance(modular.double(), x.double(), 1, epsilon)
    assert_same(maps.double(), reference.values)
    assert_same(maps.double().flatten(1).sum(1) + reference.absorbed, modular(x.double())[:, 1])


class GuidedRelu(nn.Module):
    """ReLU with the rule of guided backpropagation, on a tensor of its own."""

    def forward(self, x):
        copied = x.clone()
        if copied.requires_grad:
            copied.register_hook(lambda gradient: gradient.clamp(min=0))
        return copied.relu()


@pytest.mark.parametrize("name", [name for name, method in CASES if method == "guided_backprop"])
def test_guided_backprop_passes_positive_gradients_through_every_relu(name):
    written, modular = STYLES[name].networks()
    for path, module in list(modular.named_modules()):
        if isinstance(module, nn.ReLU):
            modular.set_submodule(path, GuidedRelu())
    x = STYLES[name].inputs(4)
    point = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(modular(point)[:, 1].sum(), point)
    maps = explained(written, x, "guided_backprop")
    assert_same(maps, expected)
    assert not torch.allclose(maps, explain.attribute(written, x, 1, "grad"))


# The rewritten network.


@pytest.mark.parametrize("name", STYLES)
def test_every_operation_is_a_module_that_is_called_once_and_writes_nothing(name):
    style = STYLES[name]
    net, x = style.networks()[0], style.inputs(3)
    inspection = rewritten_network(inspect_network(net, x), x)
    assert all(operation.leaf and not operation.writes for operation in inspection.observation.operations)
    called = {operation.layer for operation in inspection.observation.operations}
    assert all(inspection.observation.calls[layer] == 1 for layer in called)
    names = dict(inspection.model.named_modules())
    assert all(new in names for copies in inspection.names.values() for new in copies)
    for path, module in net.named_modules():  # layers keep their names and parameters
        if isinstance(module, nn.Conv2d | nn.Linear) and len(inspection.names[path]) == 1:
            assert inspection.names[path] == (path,)
            assert inspection.model.get_submodule(path).weight is module.weight


@pytest.mark.parametrize("name", STYLES)
def test_the_batch_size_is_not_fixed(name):
    style = STYLES[name]
    net, x = style.networks()[0], style.inputs(7)
    copied = rewritten(net, x[:3])
    for rows in (1, 2, 7):
        assert_same(copied(x[:rows]), net(x[:rows]), 1e-6)


class Calls(nn.Module):
    """A convolution, a function of its output, and a linear layer."""

    def __init__(self, function) -> None:
        super().__init__()
        self.conv, self.function, self.head = nn.Conv2d(3, 4, 3), function, nn.LazyLinear(3)

    def forward(self, x):
        return self.head(self.function(self.conv(x)).flatten(1))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda h: F.leaky_relu(h, 0.3), nn.LeakyReLU(0.3)),
        (lambda h: F.leaky_relu_(h, negative_slope=0.4), nn.LeakyReLU(0.4)),
        (lambda h: F.relu(input=h, inplace=True), nn.ReLU()),
        (lambda h: h.clip(min=0), nn.ReLU()),
        (lambda h: F.elu(h, 0.7), nn.ELU(0.7)),
        (lambda h: F.softplus(h, 2, 10), nn.Softplus(2, 10)),
        (lambda h: h.softmax(-1), nn.Softmax(-1)),
        (lambda h: torch.log_softmax(h, 1), nn.LogSoftmax(1)),
        (lambda h: F.hardtanh(h, -2, 0.5), nn.Hardtanh(-2, 0.5)),
        (lambda h: F.gelu(h, approximate="tanh"), nn.GELU("tanh")),
        (lambda h: F.max_pool2d(h, 3, 2, 1), nn.MaxPool2d(3, 2, 1)),
        (lambda h: torch.max_pool2d(h, 2, ceil_mode=True), nn.MaxPool2d(2, ceil_mode=True)),
        (lambda h: F.max_pool3d(h[:, None], 2), nn.MaxPool3d(2)),
        (lambda h: F.avg_pool2d(h, 3, 2, 1, False, False), nn.AvgPool2d(3, 2, 1, False, False)),
        (lambda h: F.adaptive_max_pool2d(h, (2, 3)), nn.AdaptiveMaxPool2d((2, 3))),
        (
            lambda h: F.conv2d(h, torch.ones(2, 2, 3, 3), padding="same", groups=2),
            nn.Conv2d(4, 2, 3, padding="same", groups=2),
        ),
        (lambda h: torch.add(h, other=h.detach().clone().add(h)), rewriting.Add()),
        # No module computes these, and they stay functions.
        (lambda h: h.clamp(0, 0.2), None),
        (lambda h: torch.add(h, h.sin(), alpha=2), None),
        (lambda h: h.add_(2 * h, alpha=0.5), None),
        (lambda h: F.max_pool2d(h, 2, return_indices=True)[0], None),
        (lambda h: F.softmax(h, 1, dtype=torch.float64).float(), None),
        (lambda h: F.dropout(h, training=False), None),
        (lambda h: torch.cat([part.cos() for part in h.chunk(2, dim=1)]) if h.dim() == 3 else h.sub_(1), None),
        (lambda h: sum(part for part in h.chunk(2, dim=1)), None),
    ],
)
def test_functions_become_modules_with_the_same_options(function, expected):
    torch.manual_seed(0)
    net, x = Calls(function).eval(), torch.randn(3, *IMAGE)
    net(x)
    copied = rewritten(net, x)  # outputs and gradients are compared
    assert_same(copied(x), net(x), 1e-6)
    added = [str(module) for name, module in copied.named_modules() if name not in ("", "conv", "head")]
    torch_modules = [text for text in added if not text.startswith(("Function", "Add("))]
    if isinstance(expected, rewriting.Add):
        assert "Add()" in added
    elif expected is not None:
        assert str(expected).replace("bias=False", "") in [text.replace(", bias=False", "") for text in torch_modules]
    else:
        assert not torch_modules


def test_the_length_of_the_batch_is_not_fixed():
    class Length(Net):
        def forward(self, x):
            return self.head(F.relu(self.first(x)).view(len(x), -1))

    net, x = Length().eval(), torch.randn(5, 8)
    assert torch.equal(rewritten(net, x)(x), net(x))
    assert "len" not in globals()


def test_calls_of_a_reused_module_are_numbered():
    style = STYLES["torchvision ResNet"]
    net, x = style.networks()[0], style.inputs(2)
    names = rewritten_network(inspect_network(net, x), x).names
    assert names["layer1.0.relu"] == ("layer1.0.relu__1", "layer1.0.relu__2")
    assert names["layer1.0"] == names["layer1"] == ("layer1.0.relu__2",)
    assert names["layer2.0.downsample"] == names["layer2.0.downsample.1"] == ("layer2.0.downsample.1",)
    shared: Any = STYLES["reused modules"].networks()[0]
    copied = rewritten(shared, STYLES["reused modules"].inputs(2))
    first, second = (copied.get_submodule(f"conv__{call}") for call in (1, 2))
    assert first is not second
    assert first.weight is second.weight is shared.conv.weight


def test_a_module_with_one_operation_keeps_its_name():
    net, x = OwnParameters().eval(), torch.randn(2, *IMAGE)
    assert isinstance(rewritten(net, x).get_submodule("fc"), nn.Linear)
    style = STYLES["torchvision ResNet"]
    copied = rewritten(style.networks()[1], style.inputs(2))
    assert isinstance(copied.get_submodule("body.3.add"), rewriting.Add)


def state(net: nn.Module) -> list[Any]:
    return [
        (name, sorted(vars(module)), module.training, len(module._forward_hooks), len(module._forward_pre_hooks),
         getattr(module, "inplace", None), [(id(p), p.requires_grad, p.grad, p.tolist()) for p in module.parameters()],
         [(id(b), b.tolist()) for b in module.buffers()])
        for name, module in net.named_modules()
    ]  # fmt: skip


@pytest.mark.parametrize("name", STYLES)
def test_the_network_of_the_user_is_not_changed(name):
    style = STYLES[name]
    net, x = style.networks()[0], style.inputs(2)
    before, outputs = state(net), net(x)
    for method in sorted(style.methods | {"gradcam"} if len(style.shape) > 1 else style.methods):
        explained(net, x, method, x)
    assert state(net) == before
    assert torch.equal(net(x), outputs)
    assert nn.Module.__call__.__module__ == "torch.nn.modules.module"  # fx replaces it while it traces


def test_a_suitable_network_is_not_traced(monkeypatch):
    monkeypatch.setattr(rewriting, "rewritten_network", lambda *_: pytest.fail("traced"))
    for style in STYLES.values():
        modular, x = style.networks()[1], style.inputs(2)
        for method in style.methods | {"grad", "shapley"}:
            inspection = inspect_network(modular, x)
            requirement = get_explainer(method).requirement({})
            assert suitable_network(method, requirement, inspection, x) is inspection
    for name in ("functional", "torchvision ResNet", "depthwise"):  # only DeepLIFT needs modules for ReLU and additions
        net, x = STYLES[name].networks()[0], STYLES[name].inputs(2)
        assert all(suitable(net, method, x).model is net for method in ("lrp", "guided_backprop", "gradcam"))


# What cannot be rewritten is refused.


class Branches(Net):
    def forward(self, x):
        h = F.relu(self.first(x))
        return self.head(h if (h.abs().sum() > -1) else -h)


class Counts(Net):
    def forward(self, x):
        h = F.relu(self.first(x))
        return self.head(h[: int(h.numel() * h.abs().max())] if h.dim() == 2 else h)


class FixedBatch(Net):
    def forward(self, x):
        return self.head(F.relu(self.first(x)).view(int(x.shape[0]), -1))


class WritesIntoView(Net):
    def forward(self, x):
        h = self.first(x)
        h.view(-1).relu_()
        return self.head(h)


class WritesElements(Net):
    def forward(self, x):
        h = F.relu(self.first(x)).clone()
        h[:, 0] = 0
        return self.head(h)


class Detached(Net):
    def forward(self, x):
        return self.head(F.relu(self.first(x.detach())))


class Couples(Net):
    def forward(self, x):
        return self.head(F.relu(self.first(x - x.mean(0))))


class Draws(Net):
    def forward(self, x):
        return self.head(F.relu(self.first(x)) + torch.rand_like(x))


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        (Branches, "its forward method depends on computed values in a condition"),
        (Counts, "its forward method depends on computed values"),
        (FixedBatch, "the forward method may depend on the number of examples"),
        (WritesIntoView, "its outputs differ from those of the network"),
        (WritesElements, "it could not be traced ('_Proxy' object does not support item assignment)"),
    ],
)
def test_what_cannot_be_rewritten_is_refused_with_the_remedy_and_the_reason(network, reason):
    torch.manual_seed(0)
    net, x = network().eval(), torch.randn(4, 8)
    with pytest.raises(InputError) as error:
        suitable(net, "deepshap", x)
    message = str(error.value)
    assert message.startswith("method 'deepshap': the network's forward method: ")
    assert "; use " in message.partition(". The network could not be rewritten automatically: ")[0]
    assert message.endswith(reason) or reason in message
    assert explain.attribute(net, x, 1, "expected_gradients", background=x, samples=4).shape == x.shape
    assert any("deepshap" in finding.methods for finding in explain.check_network(net, x))


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (lambda: nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.ReLU(inplace=True)), "call model.eval() first"),
        (Detached, "the output has no gradient with respect to the input; remove detach"),
        (Couples, "changes with the other examples in its batch"),
        (Draws, "it draws random numbers"),
    ],
)
def test_general_problems_are_refused_without_rewriting(network, message, monkeypatch):
    monkeypatch.setattr(rewriting, "rewritten_network", lambda *_: pytest.fail("traced"))
    with pytest.raises(InputError) as error:
        suitable(network(), "deepshap", torch.randn(3, 8))
    assert message in str(error.value)


class Scaled(nn.Module):
    def __init__(self, net: nn.Module, factor: float) -> None:
        super().__init__()
        self.net, self.factor = net, factor

    def forward(self, x):
        return self.factor * self.net(x)


def corrupted(network_of_modules, factor):
    def build(model, trace):
        network, names = network_of_modules(model, trace)
        return Scaled(network, factor), names

    return build


def test_a_copy_is_compared_relative_to_the_outputs(monkeypatch):
    style = STYLES["functional"]
    net, x, background = style.networks()[0], style.inputs(3), style.inputs(4, seed=2)
    small = Scaled(net, 1e-6)
    maps = explained(small, x, "deepshap", background)
    expected = small(x)[:, 1] - small(background)[:, 1].mean()
    assert expected.abs().max() < 1e-5
    assert_same(maps.flatten(1).sum(1), expected)
    monkeypatch.setattr(rewriting, "_network_of_modules", corrupted(rewriting._network_of_modules, 1.001))
    for network in (small, net, Scaled(net, 1e6)):  # an absolute tolerance would accept the first
        with pytest.raises(InputError, match="its outputs differ from those of the network"):
            suitable(network, "deepshap", x)


class WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return 1.001 * gradient


def test_a_copy_with_other_gradients_is_refused(monkeypatch):
    build = rewriting._network_of_modules

    def with_wrong_gradient(model, trace):
        network, names = build(model, trace)
        head = Function(WrongGradient.apply)
        return nn.Sequential(network, head), names

    monkeypatch.setattr(rewriting, "_network_of_modules", with_wrong_gradient)
    net, x = FunctionalLeNet().eval(), torch.randn(3, *IMAGE)
    with pytest.raises(InputError, match="its gradients differ from those of the network"):
        suitable(net, "deepshap", x)


def test_gradients_of_probabilities_are_compared():
    """The gradient of the sum of a softmax is zero up to rounding, so that it could not be compared."""

    class Probabilities(Net):
        def forward(self, x):
            return F.softmax(self.head(F.relu(self.first(x))), dim=1)

    net, x = Probabilities().eval(), torch.randn(3, 8)
    copied = rewritten_network(inspect_network(net, x), x)
    assert copied.observation.gradient is not None
    assert copied.observation.gradient.abs().max() > 1e-3


# Methods that are defined work, the others are refused by name.


class Mlp(Net):
    def __init__(self, activation) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, x):
        return self.head(self.activation(F.relu(self.first(x))))


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(8, 3)

    def forward(self, x):
        h = x.view(x.size(0), 2, 4)
        h = h + self.attention(h, h, h)[0]
        return self.head(F.relu(h).flatten(1))


class AttendsByHand(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.keys, self.head = nn.Linear(4, 4), nn.Linear(8, 3)

    def forward(self, x):
        h = x.view(-1, 2, 4)
        weights = torch.softmax(self.keys(h) @ h.transpose(1, 2) / 2, dim=-1)
        return self.head(F.relu(weights @ h).flatten(1))


NO_RULE = {
    "SiLU": (lambda: Mlp(nn.SiLU()), "layer 'activation': there is no rule for SiLU", RULES),
    "F.silu": (lambda: Mlp(F.silu), "the network's forward method: there is no rule for SiLU", RULES),
    "GELU": (lambda: Mlp(nn.GELU()), "layer 'activation': there is no rule for GELU", RULES),
    "F.gelu": (lambda: Mlp(F.gelu), "the network's forward method: there is no rule for GELU", RULES),
    "LayerNorm": (lambda: Mlp(nn.LayerNorm(8)), "there is no rule for LayerNorm", {"deepshap", "lrp"}),
    "F.layer_norm": (
        lambda: Mlp(lambda h: F.layer_norm(h, (8,))),
        "there is no rule for layer_norm",
        {"deepshap", "lrp"},
    ),
    "attention": (Attends, "layer 'attention", {"deepshap", "lrp"}),
    "attention by hand": (AttendsByHand, "multiplies two activations, for which there is no rule", {"deepshap", "lrp"}),
}


@pytest.mark.parametrize("name", NO_RULE)
def test_methods_without_a_rule_are_refused_and_gradients_work(name):
    build, message, refused = NO_RULE[name]
    torch.manual_seed(0)
    net, x, background = build().eval(), torch.randn(3, 8), torch.randn(4, 8)
    for method in sorted(RULES):
        if method not in refused:
            assert explained(net, x, method, background).shape == x.shape
            continue
        with pytest.raises(InputError, match=f"^method '{method}': ") as error:
            suitable(net, method, x)
        assert message in str(error.value)
        assert "use 'expected_gradients', 'integrated_gradients' or 'shapley' instead" in str(error.value)
        assert "could not be rewritten" not in str(error.value)
    for method in GRADIENT_METHODS:
        inspection = inspect_network(net, x)
        assert suitable_network(method, get_explainer(method).requirement({}), inspection, x) is inspection
        assert explain.attribute(net, x, 1, method, background=background, samples=4).abs().max() > 0
    found = {method for finding in explain.check_network(net, x) for method in finding.methods}
    assert found & RULES == refused


# Grad-CAM.


def cam(net: nn.Module, x: Tensor, layer: str | None = None) -> Tensor:
    with prepared_request(suitable(net, "gradcam", x).model, x, 1, "gradcam") as request:
        return gradcam(replace(request, layer=layer, inspection=suitable(net, "gradcam", x)))


def map_of(net: nn.Module, x: Tensor, layer: str) -> Tensor:
    """Grad-CAM by hand of a module that is called once and not overwritten."""
    maps: list[Tensor] = []
    with net.get_submodule(layer).register_forward_hook(lambda _m, _i, output: maps.append(output)):
        score = net(x)[:, 1].sum()
    (gradient,) = torch.autograd.grad(score, maps[0])
    small = F.relu((gradient.mean((2, 3), keepdim=True) * maps[0]).sum(1, keepdim=True))
    return F.interpolate(small, size=x.shape[2:], mode="bilinear").expand_as(x).detach()


@pytest.mark.parametrize(
    ("layer", "modular_layer"),
    [
        (None, "body.5.after"),
        ("layer2.1", "body.5.after"),
        ("layer2", "body.5.after"),
        ("layer2.1.relu__2", "body.5.after"),
        ("layer2.1.relu__1", "body.5.body.2"),
        ("layer2.1.bn2", "body.5.body.4"),  # overwritten by out += identity
        ("layer2.1.bn1", "body.5.body.1"),  # overwritten by the ReLU
        ("bn1", "body.1"),
    ],
)
def test_gradcam_explains_layers_that_are_reused_or_overwritten(layer, modular_layer):
    style = STYLES["torchvision ResNet"]
    written, modular = style.networks(seed=3)
    x = style.inputs(4)
    expected = map_of(modular, x, modular_layer)
    assert expected.abs().max() > 0
    assert_same(cam(written, x, layer), expected)
    assert_same(cam(modular, x, modular_layer), expected)


def test_gradcam_of_a_reused_layer_needs_the_number_of_the_call():
    style = STYLES["torchvision ResNet"]
    net, x = style.networks()[0], style.inputs(2)
    with pytest.raises(
        InputError, match=r"choose one of them with layer='layer1.0.relu__1' or layer='layer1.0.relu__2'"
    ):
        cam(net, x, "layer1.0.relu")


def test_gradcam_finds_a_layer_in_a_network_of_functions():
    class Functions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernel = nn.Parameter(torch.randn(5, 3, 3, 3))
            self.matrix = nn.Parameter(torch.randn(4, 5))

        def forward(self, x):
            h = F.relu(F.conv2d(x, self.kernel))
            return F.linear(h.mean((2, 3)), self.matrix)

    torch.manual_seed(0)
    net, x = Functions().eval(), torch.randn(3, *IMAGE)
    conv, head = nn.Conv2d(3, 5, 3, bias=False), nn.Linear(5, 4, bias=False)
    conv.weight, head.weight = net.kernel, net.matrix
    modular = nn.Sequential(conv, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)
    assert_same(cam(net, x), map_of(modular, x, "1"))

    class Untraceable(Functions):
        def forward(self, x):
            return super().forward(x if x.sum() > -1e9 else -x)

    with pytest.raises(
        InputError, match=r"no layer of this network outputs a map.* could not be rewritten automatically"
    ):
        cam(Untraceable().eval(), x)


def test_copies_of_a_rewritten_network_work():
    net, x = ResNet().eval(), torch.randn(2, *IMAGE)
    copied = rewritten(net, x)
    assert torch.equal(copy.deepcopy(copied)(x), copied(x))
