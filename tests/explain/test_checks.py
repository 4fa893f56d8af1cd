"""The network checker: every refusal names the layer and the remedy, and refuses only what would be wrong."""

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
ALL = set(explain.method_names())


class Net(nn.Module):
    """Two linear layers with whatever between them."""

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
    """Keeps a detached copy for later, as many do: no harm."""

    def forward(self, x):
        h = self.act(self.first(x))
        self.seen = h.detach().clone()
        return self.head(h)


class Gated(Net):
    def forward(self, x):
        return self.head(self.act(self.first(x)) * self.second(x))


class Scaled(Net):
    """A linear step outside a layer: relevance cannot follow it, DeepLIFT can."""

    def forward(self, x):
        return self.head(self.act(self.first((x - 0.5) / 2)))


class Sigmoid(Net):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.Sigmoid()


class Gelu(Net):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.GELU()


@pytest.mark.parametrize(
    ("network", "refused", "says"),
    [
        (Net, set(), ""),
        (Logged, set(), ""),
        (
            FunctionalRelu,
            RULES,
            "relu is called as a function, which the method cannot see; use an nn.ReLU module of its own",
        ),
        (ClampedByHand, {"deepshap", "lrp", "guided_backprop"}, "the network's own forward"),
        (
            SharedRelu,
            {"deepshap", "lrp"},
            "layer 'act': ReLU is used 2 times in a forward pass; give each use a module",
        ),
        (InPlaceRelu, RULES, "layer 'act': relu works in place"),
        (PlainResidual, {"lrp"}, "two branches are added by a plain +"),
        (InPlaceResidual, RULES, "add works in place"),
        (Dropped, ALL, "it draws random numbers"),
        (BatchMean, ALL, "changes with the other samples in its batch"),
        (Frozen, GRADIENTS, "the input is frozen"),
        (FrozenBranch, GRADIENTS, "layer 'second': a part of the output is cut off from the input's gradient"),
        (Gated, {"deepshap", "lrp"}, "mul multiplies two activations"),
        (Scaled, {"lrp"}, "happens outside a layer that has a relevance rule"),
        (Sigmoid, {"lrp", "guided_backprop"}, "layer 'act': there is no rule for Sigmoid"),
        (Gelu, RULES, "layer 'act': there is no rule for GELU"),
    ],
)
def test_only_what_would_be_wrong_is_refused(network, refused, says):
    torch.manual_seed(0)
    net = network().eval()
    x, background = torch.randn(3, 6), torch.randn(4, 6)
    messages = []
    for method in sorted(ALL - {"gradcam"}):
        if method not in refused:
            assert explain.attribute(net, x, 1, method, background=background, samples=8).shape == x.shape
            continue
        with pytest.raises(InputError, match=f"method '{method}'") as told:
            explain.attribute(net, x, 1, method, background=background, samples=8)
        messages.append(str(told.value))
    assert not refused or any(says in message for message in messages), messages
    for given in (x, x.numpy(), x.double()):
        found = {method for finding in explain.check_network(net, given) for method in finding.methods}
        assert found == refused


def test_what_is_not_refused_is_right():
    """Integrated gradients of the awkward networks are complete; DeepLIFT is where it is allowed."""
    torch.manual_seed(0)
    x, background = torch.randn(3, 6), torch.randn(4, 6)
    for network in (FunctionalRelu, SharedRelu, InPlaceRelu, PlainResidual, InPlaceResidual, Gated, Scaled):
        net = network().eval()
        found = explain.attribute(net, x, 1, "integrated_gradients", samples=300)
        torch.testing.assert_close(found.sum(1), (net(x) - net(torch.zeros(1, 6)))[:, 1].detach(), atol=5e-3, rtol=1e-2)
    for other in (PlainResidual, Scaled, Sigmoid):
        fine = other().eval()
        deep = explain.attribute(fine, x, 1, "deepshap", background=background)
        torch.testing.assert_close(deep.sum(1), (fine(x)[:, 1] - fine(background)[:, 1].mean()).detach())


def test_captum_alone_would_have_been_wrong_with_a_functional_activation():
    torch.manual_seed(0)
    net = FunctionalRelu().eval()
    x, background = torch.randn(3, 6), torch.randn(4, 6)
    theirs = DeepLiftShap(net).attribute(x, background, target=1).sum(1)
    assert (theirs - (net(x)[:, 1] - net(background)[:, 1].mean())).abs().max() > 1e-3


@pytest.mark.parametrize("method", sorted(ALL))
def test_training_mode_is_refused_where_it_matters(method):
    net = nets.build("resnet18", input_shape=(1, 8, 8), outputs=3, width=2)
    with pytest.raises(InputError, match=r"layer 'body.norm': BatchNorm2d is in training mode.*call model.eval\(\)"):
        explain.attribute(net, torch.zeros(2, 1, 8, 8), 0, method)
    assert net.training
    plain = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    assert plain.training
    assert explain.attribute(plain, torch.ones(1, 4), 0, "grad").shape == (1, 4)


class Shaped(nn.Module):
    def __init__(self, how) -> None:
        super().__init__()
        self.layer, self.how = nn.Linear(6, 4), how

    def forward(self, x: Tensor):
        return self.how(self.layer(x))


@pytest.mark.parametrize(
    ("how", "says"),
    [
        (lambda h: h[:, 0], "outputs of shape (2,), expected (2, classes)"),
        (lambda h: h.reshape(-1, 2, 2), "outputs of shape (2, 2, 2)"),
        (lambda h: (h, h), "its output is a tuple"),
        (lambda h: {"logits": h}, "its output is a dict"),
        (lambda h: h.sum(0, keepdim=True), "outputs of shape (1, 4)"),
    ],
)
def test_outputs_that_are_not_batch_by_classes_are_refused(how, says):
    with pytest.raises(InputError, match="wrap it in a module") as told:
        explain.attribute(Shaped(how), torch.ones(2, 6), 0, "grad")
    assert says in str(told.value)


def test_grad_cam_refuses_layers_without_a_lasting_map():
    net: Any = nets.build("small-conv", input_shape=(1, 8, 8), outputs=3, width=2).eval()
    x = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    net.body[1] = nn.ReLU(inplace=True)
    with pytest.raises(InputError, match=r"layer 'body.1' overwrites the output of layer 'body.0' in place"):
        explain.attribute(net, x, 0, "gradcam", layer="body.0")
    assert explain.attribute(net, x, 0, "gradcam", layer="body.4").shape == x.shape
    net.body[4] = net.body[1]
    with pytest.raises(InputError, match="is called 2 times, expected once"):
        explain.attribute(net, x, 0, "gradcam", layer="body.1")
    with pytest.raises(InputError, match="no positions"):
        explain.attribute(nn.Linear(4, 2), torch.ones(1, 4), 0, "gradcam")


def test_overlapping_pooling_windows_are_refused_by_deepshap_alone():
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(3, stride=2), nn.Flatten(), nn.Linear(8, 2)).eval()
    x = torch.randn(2, 1, 7, 7)
    with pytest.raises(InputError, match=r"layer '2': its pooling windows overlap \(kernel 3, stride 2\)"):
        explain.attribute(net, x, 0, "deepshap", background=x)
    assert explain.attribute(net, x, 0, "guided_backprop").shape == x.shape


def test_our_networks_pass_and_are_left_alone():
    for name in ("small-conv", "resnet20", "lenet"):
        net = nets.build(name, input_shape=(3, 32, 32), outputs=3, width=2 if name != "lenet" else None).eval()
        before = {key: value.clone() for key, value in net.state_dict().items()}
        assert explain.check_network(net, torch.randn(2, 3, 32, 32)) == ()
        assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())


def test_an_error_inside_the_network_leaves_it_as_it_was():
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


def test_shapley_values_by_gradients_need_gradients():
    net, x = Frozen().eval(), torch.randn(2, 6)
    assert explain.attribute(net, x, 1, "shapley", baseline="zero", samples=4).shape == x.shape
    with pytest.raises(InputError, match="method 'shapley': layer 'first': the input is frozen"):
        explain.attribute(net, x, 1, "shapley", baseline="zero", samples=40, estimator="gradient")
