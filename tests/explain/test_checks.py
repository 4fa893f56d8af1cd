"""The network checker: every refusal names the layer and the remedy, and only wrong results are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from captum.attr import DeepLiftShap
from torch import Tensor, nn
from torch.nn import functional as F

from perdure import explain, nets
from perdure.base.errors import InputError

RULES = {"deepshap", "lrp", "guided_backprop"}
GRADIENTS = RULES | {"grad", "gradient_x_input", "integrated_gradients", "expected_gradients", "gradcam"}
ALL = GRADIENTS | {"lime", "shapley", "exact_shapley"}
"""The methods of this package; other packages may add more."""


class Net(nn.Module):
    """Three linear layers and an activation; subclasses change the forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.act: nn.Module = nn.ReLU()

    def forward(self, x):
        return self.head(self.act(self.second(self.first(x))))


class FunctionalRelu(Net):
    def forward(self, x):
        return self.head(F.relu(self.first(x)))


class ClampedByHand(Net):
    def forward(self, x):
        h = self.first(x)
        return self.head(h * (h > 0))


class SharedRelu(Net):
    def forward(self, x):
        return self.head(self.act(self.second(self.act(self.first(x)))))


class InPlaceRelu(Net):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU(inplace=True)


class PlainResidual(Net):
    def forward(self, x):
        return self.head(self.act(self.first(x) + x))


class InPlaceResidual(Net):
    def forward(self, x):
        h = self.first(x)
        h += x
        return self.head(self.act(h))


class Dropped(Net):
    def forward(self, x):
        return self.head(F.dropout(self.act(self.first(x)), 0.5, training=True))


class BatchMean(Net):
    def forward(self, x):
        return self.head(self.act(self.first(x - x.mean(0))))


class Frozen(Net):
    def forward(self, x):
        return self.head(self.act(self.first(x.detach())))


class FrozenBranch(Net):
    def forward(self, x):
        with torch.no_grad():
            h = self.second(x)
        return self.head(self.act(self.first(x)) + h)


class Logged(Net):
    """Stores a detached copy, which does not affect the output."""

    def forward(self, x):
        h = self.act(self.first(x))
        self.seen = h.detach().clone()
        return self.head(h)


class Gated(Net):
    def forward(self, x):
        return self.head(self.act(self.first(x)) * self.second(x))


class Scaled(Net):
    """A linear operation outside a layer: LRP has no rule for it, DeepLIFT needs none."""

    def forward(self, x):
        return self.head(self.act(self.first((x - 0.5) / 2)))


class AddedProduct(Net):
    """The first operand of addmm is added, so only one factor depends on the input."""

    def forward(self, x):
        return self.head(self.act(torch.addmm(x, x, self.first.weight)))


class Divided(Net):
    def forward(self, x):
        return self.head(self.act(self.second.bias / (10 + self.first(x))))


class FrozenMaskedBranch(Net):
    """A comparison has no gradient by definition; what it selects has one, until it is detached."""

    def forward(self, x):
        h = self.first(x)
        return self.head(self.act(self.second(x)) + (h * (h > 0)).detach())


class Sigmoid(Net):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.Sigmoid()


class Gelu(Net):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.GELU()


@pytest.mark.parametrize(
    ("network", "refused", "message"),
    [
        (Net, set(), ""),
        (Logged, set(), ""),
        (FunctionalRelu, set(), ""),
        (ClampedByHand, {"deepshap", "lrp", "guided_backprop"}, "the network's forward method"),
        (SharedRelu, set(), ""),
        (InPlaceRelu, set(), ""),
        (PlainResidual, set(), ""),
        (InPlaceResidual, set(), ""),
        (Dropped, ALL, "it draws random numbers"),
        (BatchMean, ALL, "changes with the other examples in its batch"),
        (Frozen, GRADIENTS, "layer 'first': the output has no gradient with respect to the input; remove detach"),
        (FrozenBranch, GRADIENTS, "layer 'second': part of the output is cut off from the gradient of the input"),
        (Gated, {"deepshap", "lrp"}, "mul multiplies two activations"),
        (FrozenMaskedBranch, GRADIENTS, "part of the output is cut off from the gradient of the input"),
        (Divided, {"deepshap", "lrp"}, "for which there is no rule"),
        (AddedProduct, {"lrp"}, "addmm happens outside a layer that has a relevance rule"),
        (Scaled, set(), ""),
        (Sigmoid, {"lrp", "guided_backprop"}, "layer 'act': there is no rule for Sigmoid"),
        (Gelu, RULES, "layer 'act': there is no rule for GELU"),
    ],
)
def test_only_methods_that_would_be_wrong_are_refused(network, refused, message):
    torch.manual_seed(0)
    net = network().eval()
    x, background = torch.randn(3, 6), torch.randn(4, 6)
    messages = []
    for method in sorted(ALL - {"gradcam"}):
        if method not in refused:
            assert explain.attribute(net, x, 1, method, background=background, samples=8).shape == x.shape
            continue
        with pytest.raises(InputError, match=f"method '{method}'") as error:
            explain.attribute(net, x, 1, method, background=background, samples=8)
        messages.append(str(error.value))
    assert not refused or any(message in text for text in messages), messages
    for inputs in (x, x.numpy(), x.double()):
        methods = {method for finding in explain.check_network(net, inputs) for method in finding.methods}
        assert methods & ALL == refused


def test_maps_that_are_not_refused_are_complete():
    """Integrated gradients are complete on all of these networks, DeepLIFT on those it accepts."""
    torch.manual_seed(0)
    x, background = torch.randn(3, 6), torch.randn(4, 6)
    for network in (FunctionalRelu, SharedRelu, InPlaceRelu, PlainResidual, InPlaceResidual, Gated, Scaled):
        net = network().eval()
        maps = explain.attribute(net, x, 1, "integrated_gradients", samples=300)
        torch.testing.assert_close(maps.sum(1), (net(x) - net(torch.zeros(1, 6)))[:, 1].detach(), atol=5e-3, rtol=1e-2)
    for accepted in (FunctionalRelu, SharedRelu, InPlaceRelu, PlainResidual, InPlaceResidual, Scaled, Sigmoid):
        fine = accepted().eval()
        deep = explain.attribute(fine, x, 1, "deepshap", background=background)
        torch.testing.assert_close(deep.sum(1), (fine(x)[:, 1] - fine(background)[:, 1].mean()).detach())


def test_captum_is_wrong_with_a_functional_activation():
    torch.manual_seed(0)
    net = FunctionalRelu().eval()
    x, background = torch.randn(3, 6), torch.randn(4, 6)
    theirs = DeepLiftShap(net).attribute(x, background, target=1).sum(1)
    assert (theirs - (net(x)[:, 1] - net(background)[:, 1].mean())).abs().max() > 1e-3


@pytest.mark.parametrize("method", explain.method_names())
def test_training_mode_is_refused_if_it_changes_outputs(method):
    net = nets.build("resnet18", input_shape=(1, 8, 8), outputs=3, width=2)
    with pytest.raises(InputError, match=r"layer 'body.norm': BatchNorm2d is in training mode.*call model.eval\(\)"):
        explain.attribute(net, torch.zeros(2, 1, 8, 8), 0, method)
    assert net.training
    plain = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0), nn.ReLU(), nn.Linear(4, 2))
    assert plain.training
    assert explain.attribute(plain, torch.ones(1, 4), 0, "grad").shape == (1, 4)


class Shaped(nn.Module):
    def __init__(self, reshape) -> None:
        super().__init__()
        self.layer, self.reshape = nn.Linear(6, 4), reshape

    def forward(self, x: Tensor):
        return self.reshape(self.layer(x))


@pytest.mark.parametrize(
    ("reshape", "message"),
    [
        (lambda h: h.reshape(-1, 2, 2), "got (2, 2, 2)"),
        (lambda h: ("no", "tensor"), "expected one output tensor (batch, classes), got a tuple"),
        (lambda h: {"scores": h}, "got a dict with the keys scores; pass perdure.adapt(model, logits=function)"),
        (lambda h: h.sum(0, keepdim=True), "got (1, 4)"),
    ],
)
def test_outputs_that_are_not_batch_by_classes_are_refused(reshape, message):
    with pytest.raises(InputError, match="expected") as error:
        explain.attribute(Shaped(reshape), torch.ones(2, 6), 0, "grad")
    assert message in str(error.value)


def test_gradcam_explains_overwritten_and_reused_layers_and_refuses_those_without_positions():
    net: Any = nets.build("small-conv", input_shape=(1, 8, 8), outputs=3, width=2).eval()
    x = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    expected = explain.attribute(net, x, 0, "gradcam", layer="body.0")
    net.body[1] = nn.ReLU(inplace=True)
    torch.testing.assert_close(explain.attribute(net, x, 0, "gradcam", layer="body.0"), expected)
    assert explain.attribute(net, x, 0, "gradcam", layer="body.4").shape == x.shape
    last = explain.attribute(net, x, 0, "gradcam", layer="body.4")
    net.body[4] = net.body[1]
    with pytest.raises(InputError, match=r"expected one call of layer 'body.1' in a forward pass, got 2; choose one"):
        explain.attribute(net, x, 0, "gradcam", layer="body.1")
    torch.testing.assert_close(explain.attribute(net, x, 0, "gradcam", layer="body.1__2"), last)
    with pytest.raises(InputError, match="no positions"):
        explain.attribute(nn.Linear(4, 2), torch.ones(1, 4), 0, "gradcam")


def test_only_deepshap_refuses_overlapping_pooling_windows():
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(3, stride=2), nn.Flatten(), nn.Linear(8, 2)).eval()
    x = torch.randn(2, 1, 7, 7)
    with pytest.raises(InputError, match=r"layer '2': its pooling windows overlap \(kernel 3, stride 2\)"):
        explain.attribute(net, x, 0, "deepshap", background=x)
    assert explain.attribute(net, x, 0, "guided_backprop").shape == x.shape


def test_networks_of_this_package_pass_the_check_unchanged():
    for name in ("small-conv", "resnet20", "lenet"):
        net = nets.build(name, input_shape=(3, 32, 32), outputs=3, width=2 if name != "lenet" else None).eval()
        before = {key: value.clone() for key, value in net.state_dict().items()}
        assert explain.check_network(net, torch.randn(2, 3, 32, 32)) == ()
        assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())


def test_the_network_is_restored_after_an_error_in_its_forward_pass():
    class Fails(Net):
        def forward(self, x):
            self.counter = getattr(self, "counter", 0) + 1
            if self.counter > 3:
                raise RuntimeError("out of luck")
            return super().forward(x)

    net = Fails().eval()
    with pytest.raises(RuntimeError, match="out of luck"):
        explain.attribute(net, torch.ones(2, 6), 0, "integrated_gradients")
    assert not hasattr(net, "counter")
    assert not any(module._forward_hooks for module in net.modules())


def test_the_gradient_estimator_of_shapley_requires_gradients():
    net, x = Frozen().eval(), torch.randn(2, 6)
    assert explain.attribute(net, x, 1, "shapley", baseline="zero", samples=4).shape == x.shape
    with pytest.raises(InputError, match="method 'shapley': layer 'first': the output has no gradient"):
        explain.attribute(net, x, 1, "shapley", baseline="zero", samples=40, options={"estimator": "gradient"})


class AddsNoise(nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.scores, self.draw = nn.Linear(6, 3), draw

    def forward(self, x):
        return self.scores(x) + self.draw(len(x))


@pytest.mark.parametrize(
    "draw",
    [
        lambda rows: torch.randn(rows, 3),
        lambda rows: torch.rand(rows, 3),
        lambda rows: torch.randint(0, 2, (rows, 3)),
        lambda rows: torch.normal(torch.zeros(rows, 3)),
        lambda rows: torch.zeros(rows, 3).exponential_(),
    ],
    ids=["randn", "rand", "randint", "normal", "exponential"],
)
def test_outputs_with_random_draws_are_refused(draw):
    with pytest.raises(InputError, match="draws random numbers"):
        explain.attribute(AddsNoise(draw).eval(), torch.randn(2, 6), 1, "grad")


def test_outputs_that_depend_on_the_batch_are_found_at_any_scale():
    class SmallBatchMean(nn.Module):
        def forward(self, x):
            return 1e-6 * (x[:, :3] - x[:, :3].mean(dim=0))

    for examples in (3, 1):  # a single example is examined together with zeros
        with pytest.raises(InputError, match="changes with the other examples in its batch"):
            explain.attribute(SmallBatchMean().eval(), torch.randn(examples, 6), 1, "grad")


def test_guided_backprop_without_a_relu_is_refused():
    with pytest.raises(InputError, match=r"has no nn.ReLU.* use 'grad'"):
        explain.attribute(nn.Sequential(nn.Linear(6, 3)).eval(), torch.randn(2, 6), 1, "guided_backprop")


class Sequence(nn.Module):
    """A network on (batch, time, features)."""

    def __init__(self):
        super().__init__()
        self.embed, self.act, self.scores = nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)

    def forward(self, x):
        return self.scores(self.act(self.embed(x)).mean(dim=1))


def test_grad_cam_refuses_a_sequence_of_features_and_accepts_a_convolution_over_time():
    x = torch.randn(2, 7, 4)
    with pytest.raises(InputError, match=r"layer 'act' outputs .* not the output of a convolution"):
        explain.attribute(Sequence().eval(), x, 1, "gradcam")
    convolution = nn.Sequential(
        nn.Conv1d(7, 5, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(5, 3)
    )
    assert explain.attribute(convolution.eval(), x, 1, "gradcam").shape == x.shape


def test_a_rewritten_network_is_compared_relative_to_its_outputs():
    from perdure.explain.adapters.models import _same_outputs

    probe = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    small = nn.Linear(6, 3, bias=False)
    with torch.no_grad():
        small.weight.mul_(1e-6)
        expected = small(probe)
        assert _same_outputs(small, probe, expected)
        assert not _same_outputs(nn.Sequential(small, Scale(2.0)), probe, expected)
        large = 1e4 * expected / expected.abs().max()
        assert _same_outputs(Constant(large * (1 + 1e-7)), probe, large)


class Scale(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return self.factor * x


class Constant(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, _):
        return self.value
