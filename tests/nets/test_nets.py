"""Networks: published sizes, seeds, shapes and messages."""

from __future__ import annotations

import copy
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from perdure import nets
from perdure.base.errors import InputError
from perdure.nets import registry

# Parameters in the papers' or the reference implementations' setting: (input shape, outputs, count).
PUBLISHED = {
    "mlp400": ((1, 28, 28), 10, 478_410),  # 784 * 400 + 400 + 400 * 400 + 400 + 400 * 10 + 10
    "resnet18": ((3, 32, 32), 10, 11_173_962),  # small-image ResNet-18, 11.17 M
    "lenet": ((1, 28, 28), 10, 61_706),
    "zenke-conv": ((3, 32, 32), 10, 1_250_858),
    "resnet20": ((3, 32, 32), 10, 269_722),  # He et al. Table 6: 0.27 M
    "resnet32": ((3, 32, 32), 10, 464_154),  # 0.46 M
    "resnet44": ((3, 32, 32), 10, 658_586),  # 0.66 M
    "resnet56": ((3, 32, 32), 10, 853_018),  # 0.85 M
    "resnet50": ((3, 224, 224), 1000, 25_557_032),
    "resnet101": ((3, 224, 224), 1000, 44_549_160),
    "alexnet": ((3, 224, 224), 1000, 61_100_840),
    "vgg16": ((3, 224, 224), 1000, 138_357_544),  # Simonyan and Zisserman, Table 2: 138 M
    "vgg19": ((3, 224, 224), 1000, 143_667_240),  # 144 M
    "wide-resnet": ((3, 32, 32), 10, 36_479_194),  # WRN-28-10, Zagoruyko and Komodakis Table 4: 36.5 M
    "wide-resnet16": ((3, 32, 32), 10, 10_961_370),  # WRN-16-8: 11.0 M
    "wide-resnet40": ((3, 32, 32), 10, 8_949_210),  # WRN-40-4: 8.9 M
}
# Widths that keep the tests fast; the structure is the same.
NARROW = {
    "alexnet": 2,
    "mlp400": 16,
    "resnet101": 4,
    "resnet18": 4,
    "resnet50": 4,
    "vgg16": 2,
    "vgg19": 2,
    "vit-small": 32,
    "wide-resnet": 1,
    "wide-resnet16": 1,
    "wide-resnet40": 1,
    "zenke-conv": 4,
}
IMAGES = [(1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 64, 64)]
CASES = [
    (name, shape)
    for name in nets.names()
    for shape in (IMAGES if nets.describe(name).inputs != "signals" else [(2, 8), (3, 64), (40,)])
    if all(side >= least for side, least in zip(shape[1:], nets.describe(name).minimum, strict=False))
]


def narrow(name: str, shape: tuple[int, ...], outputs: int = 5, seed: int = 0) -> nets.Network:
    return nets.build(name, input_shape=shape, outputs=outputs, seed=seed, width=NARROW.get(name))


def batch(shape: tuple[int, ...], n: int = 3) -> Tensor:
    return torch.randn(n, *shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameter_count_is_the_published_one(name: str) -> None:
    shape, outputs, published = PUBLISHED[name]
    assert nets.count_parameters(name, input_shape=shape, outputs=outputs) == published


def test_lenet_pads_28_pixels_to_32() -> None:
    small = nets.count_parameters("lenet", input_shape=(1, 28, 28), outputs=10)
    assert nets.count_parameters("lenet", input_shape=(1, 32, 32), outputs=10) == small


def test_counting_agrees_with_a_built_network() -> None:
    net = nets.build("small-conv", input_shape=(3, 32, 32), outputs=10)
    count = nets.count_parameters("small-conv", input_shape=(3, 32, 32), outputs=10)
    assert count == sum(parameter.numel() for parameter in net.parameters())
    assert 10_000 <= count <= 40_000


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_forward_and_backward(name: str, shape: tuple[int, ...]) -> None:
    net = narrow(name, shape).train()
    x = batch(shape)
    logits = net(x)
    assert logits.shape == (3, 5)
    logits.square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in net.parameters())
    net.eval()
    features = net.features(x)
    assert features.shape == (3, net.feature_size)
    torch.testing.assert_close(net.head(features), net(x))


@pytest.mark.parametrize("name", ["alexnet", "vgg16", "resnet50", "lenet", "zenke-conv", "vit-small"])
@pytest.mark.parametrize("shape", [(3, 224, 224), (3, 32, 64), (3, 128, 160)])
def test_large_and_oblong_images(name: str, shape: tuple[int, ...]) -> None:
    assert narrow(name, shape).eval()(batch(shape, 1)).shape == (1, 5)


def test_alexnet_sees_small_images_through_a_finer_stem() -> None:
    stems = [nets.build("alexnet", input_shape=(3, s, s), outputs=2, width=2) for s in (32, 64, 127, 128, 224)]
    convolutions = [next(part for part in net.modules() if isinstance(part, nn.Conv2d)) for net in stems]
    assert [part.kernel_size[0] for part in convolutions] == [5, 5, 5, 11, 11]
    assert [part.stride[0] for part in convolutions] == [1, 1, 1, 4, 4]


def test_lowest_size_is_the_lowest_that_works() -> None:
    """One pixel less than the stated minimum leaves some layer without input (unpadded networks)."""
    for name in ("lenet", "zenke-conv", "alexnet", "vgg16"):
        least = nets.describe(name).minimum
        assert narrow(name, (3, *least)).eval()(batch((3, *least))).shape == (3, 5)
        entry = registry._NETWORKS[name]
        smaller = (3, *(side - 1 for side in least))
        with pytest.raises((RuntimeError, ValueError)):
            entry.make(smaller, 5, NARROW.get(name, entry.description.width))(batch(smaller))


@pytest.mark.parametrize("name", nets.names())
def test_rows_of_a_batch_do_not_meet_in_evaluation(name: str) -> None:
    shape = (32,) if nets.describe(name).inputs == "signals" else (3, 32, 32)
    net = narrow(name, shape).eval()
    x = batch(shape)
    together = net(x)
    for row in range(3):
        torch.testing.assert_close(net(x[row : row + 1]), together[row : row + 1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in nets.names() if nets.describe(name).inputs != "signals"])
def test_channels_last_gives_the_same_output(name: str) -> None:
    net = narrow(name, (3, 32, 32)).eval()
    x = batch((3, 32, 32))
    plain = net(x)
    faster = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    torch.testing.assert_close(faster(x.to(memory_format=torch.channels_last)), plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", nets.names())
def test_the_seed_alone_decides_and_the_global_state_stays(name: str) -> None:
    shape = (32,) if nets.describe(name).inputs == "signals" else (3, 32, 32)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = narrow(name, shape, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    again, other = narrow(name, shape, seed=3), narrow(name, shape, seed=4)
    assert all(torch.equal(p, q) for p, q in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.head.weight, other.head.weight)
    x = batch(shape)
    assert torch.equal(first.eval()(x), again.eval()(x))
    assert not torch.equal(first(x), other.eval()(x))


def test_small_conv_learns_the_digits() -> None:
    digits = load_digits()
    images = torch.tensor(digits.images[:, None], dtype=torch.float32)
    x, y = (images - images.mean()) / images.std(), torch.tensor(digits.target)
    draw = torch.Generator().manual_seed(0)
    train, test = torch.randperm(len(x), generator=draw).tensor_split([1400])
    net = nets.build("small-conv", input_shape=(1, 8, 8), outputs=10)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(10):
        for rows in train[torch.randperm(1400, generator=draw)].reshape(-1, 35):
            optimiser.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(net(x[rows]), y[rows]))
            optimiser.step()
    with torch.inference_mode():
        accuracy = (net(x[test]).argmax(1) == y[test]).float().mean()
    assert accuracy > 0.93


def test_numpy_sizes_are_welcome() -> None:
    net = nets.build("small-conv", input_shape=np.array([1, 8, 8]), outputs=np.int64(4))  # type: ignore[arg-type]
    assert net(batch((1, 8, 8))).shape == (3, 4)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet-18", {}, "did you mean 'resnet18'"),
        ("unheard of", {}, "known: .*small-conv"),
        ("small-conv", {"input_shape": (1, 7, 8)}, r"7 x 8 are too small, expected at least 8 x 8"),
        ("resnet18", {"input_shape": (32, 32)}, r"\(32, 32\), expected \(channels, height, width\)"),
        ("conv-1d", {"input_shape": (1, 8, 8)}, r"expected \(channels, length\)"),
        ("conv-1d", {"input_shape": (3, 7)}, "7 are too small, expected at least 8"),
        ("mlp400", {"input_shape": ()}, "expected any shape"),
        ("mlp400", {"input_shape": (0,)}, "input_shape holds 0"),
        ("mlp400", {"outputs": 2.5}, "outputs holds 2.5"),
        ("mlp400", {"width": -1}, "width holds -1"),
        (
            "vgg16",
            {"input_shape": (1, 28, 28)},
            "28 x 28 are too small, expected at least 32 x 32; enlarge or pad",
        ),
        (
            "vit-small",
            {"input_shape": (3, 30, 32)},
            "30 x 32 is no whole number of patches; pad it to multiples of 4",
        ),
        ("vit-small", {"input_shape": (3, 64, 60)}, "multiples of 8"),
        ("vit-small", {"width": 40}, "width is 40, expected a multiple of 16"),
    ],
)
def test_a_mistake_is_told_in_one_line(name: str, options: dict[str, object], message: str) -> None:
    settings: dict[str, object] = {"input_shape": (3, 32, 32), "outputs": 10} | options
    with pytest.raises(InputError, match=message) as caught:
        nets.build(name, **settings)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_a_description_is_complete_and_frozen() -> None:
    for name in nets.names():
        about = nets.describe(name)
        assert about.name == name
        assert about.paper
        assert about.width_is
    with pytest.raises(FrozenInstanceError):
        about.name = "other"  # type: ignore[misc]


class Odd(nn.Module):
    """A user's network: its layers not registered in the order they are called, no ``features`` method."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 2)
        self.features = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.features(x)))  # type: ignore[no-any-return]


def test_features_of_a_users_network_are_what_its_last_linear_sees() -> None:
    net, x = Odd(), torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(nets.features_of(net, x), torch.tanh(net.features(x)))
    assert not any(part._forward_pre_hooks for part in net.modules())


def test_features_of_our_network_are_its_method() -> None:
    net = narrow("small-conv", (1, 8, 8)).eval()
    x = batch((1, 8, 8))
    assert torch.equal(nets.features_of(net, x), net.features(x))
    body_and_head = nn.Sequential(net.body, net.head)
    assert torch.equal(nets.features_of(body_and_head, x), net.features(x))


def test_features_and_outputs_come_from_one_pass_and_the_head_is_the_layer_between() -> None:
    ours, shape = narrow("small-conv", (1, 8, 8)).eval(), (1, 8, 8)
    for net, x in (
        (Odd(), torch.randn(3, 6)),
        (ours, batch(shape)),
        (nn.Sequential(ours.body, ours.head), batch(shape)),
    ):
        passes: list[int] = []
        handle = net.register_forward_hook(lambda *_, passes=passes: passes.append(1))
        features, outputs = nets.features_and_outputs(net, x)
        handle.remove()
        assert len(passes) <= 1
        assert torch.equal(outputs, net(x))
        assert torch.equal(features, nets.features_of(net, x))
        assert torch.equal(nets.head_of(net, x)(features), outputs)


def test_a_copy_that_another_hook_runs_does_not_pass_for_the_network() -> None:
    # The meter measures a network's cost on a copy, in a hook, on two blank examples.
    net = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2))
    net.register_forward_hook(lambda module, *_: (copy.deepcopy(module)[1](torch.zeros(2, 4)), None)[1])
    x = torch.randn(3, 6)
    assert torch.equal(nets.features_of(net, x), net[0](x))


def test_no_hook_survives_a_failing_forward_pass() -> None:
    net = nn.Sequential(nn.Linear(3, 2), nn.Linear(5, 1))
    with pytest.raises(RuntimeError):
        nets.features_of(net, torch.zeros(1, 3))
    assert not any(part._forward_pre_hooks for part in net.modules())


def test_a_network_without_a_linear_layer_is_refused() -> None:
    with pytest.raises(InputError, match="features"):
        nets.features_of(nn.Conv2d(1, 1, 1), torch.zeros(1, 1, 2, 2))


def test_the_table_in_the_documentation_is_true() -> None:
    page = (Path(__file__).parents[2] / "docs" / "networks.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")] for line in page.splitlines() if line.startswith("| `")]
    assert sorted(row[1].strip("`") for row in rows) == nets.names()
    for _, quoted, paper, count, setting, takes, width, _ in rows:
        name = quoted.strip("`")
        shape, outputs = setting.split(" → ")
        sides = tuple(int(side) for side in shape.split(" x "))
        about = nets.describe(name)
        assert nets.count_parameters(name, input_shape=sides, outputs=int(outputs)) == int(count.replace(",", ""))
        assert (paper, int(width)) == (about.paper, about.width)
        assert takes.endswith(" x ".join(map(str, about.minimum)) or "any shape, flattened")
