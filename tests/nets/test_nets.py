"""Networks: published parameter counts, seeds, input shapes, error messages and registration."""

from __future__ import annotations

import copy
import subprocess
import sys
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

# Parameter counts of the papers or the reference implementations: (input shape, outputs, count).
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
# Small widths keep the tests fast; the structure is the same.
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


def build_narrow(name: str, shape: tuple[int, ...], outputs: int = 5, seed: int = 0) -> nets.Network:
    return nets.build(name, input_shape=shape, outputs=outputs, seed=seed, width=NARROW.get(name))


def batch(shape: tuple[int, ...], n: int = 3) -> Tensor:
    return torch.randn(n, *shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameter_count_equals_the_published_count(name: str) -> None:
    shape, outputs, published = PUBLISHED[name]
    assert nets.count_parameters(name, input_shape=shape, outputs=outputs) == published


def test_lenet_pads_28_pixels_to_32() -> None:
    small = nets.count_parameters("lenet", input_shape=(1, 28, 28), outputs=10)
    assert nets.count_parameters("lenet", input_shape=(1, 32, 32), outputs=10) == small


def test_count_parameters_equals_the_count_of_a_built_network() -> None:
    net = nets.build("small-conv", input_shape=(3, 32, 32), outputs=10)
    count = nets.count_parameters("small-conv", input_shape=(3, 32, 32), outputs=10)
    assert count == sum(parameter.numel() for parameter in net.parameters())
    assert 10_000 <= count <= 40_000


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_forward_and_backward(name: str, shape: tuple[int, ...]) -> None:
    net = build_narrow(name, shape).train()
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
    assert build_narrow(name, shape).eval()(batch(shape, 1)).shape == (1, 5)


def test_alexnet_has_a_smaller_first_convolution_for_small_images() -> None:
    networks = [nets.build("alexnet", input_shape=(3, s, s), outputs=2, width=2) for s in (32, 64, 127, 128, 224)]
    convolutions = [next(part for part in net.modules() if isinstance(part, nn.Conv2d)) for net in networks]
    assert [part.kernel_size[0] for part in convolutions] == [5, 5, 5, 11, 11]
    assert [part.stride[0] for part in convolutions] == [1, 1, 1, 4, 4]


def test_minimum_size_is_the_smallest_that_works() -> None:
    """With one pixel less than the minimum, some layer has an empty input (networks without padding)."""
    for name in ("lenet", "zenke-conv", "alexnet", "vgg16"):
        least = nets.describe(name).minimum
        assert build_narrow(name, (3, *least)).eval()(batch((3, *least))).shape == (3, 5)
        entry = registry.NETWORKS.get(name)
        smaller = (3, *(side - 1 for side in least))
        with pytest.raises((RuntimeError, ValueError)):
            entry.make(smaller, 5, NARROW.get(name, entry.description.width))(batch(smaller))


@pytest.mark.parametrize("name", nets.names())
def test_examples_of_a_batch_are_independent_in_evaluation_mode(name: str) -> None:
    shape = (32,) if nets.describe(name).inputs == "signals" else (3, 32, 32)
    net = build_narrow(name, shape).eval()
    x = batch(shape)
    together = net(x)
    for row in range(3):
        torch.testing.assert_close(net(x[row : row + 1]), together[row : row + 1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in nets.names() if nets.describe(name).inputs != "signals"])
def test_channels_last_gives_the_same_output(name: str) -> None:
    net = build_narrow(name, (3, 32, 32)).eval()
    x = batch((3, 32, 32))
    plain = net(x)
    faster = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    torch.testing.assert_close(faster(x.to(memory_format=torch.channels_last)), plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", nets.names())
def test_parameters_depend_on_the_seed_alone_and_the_global_state_is_unchanged(name: str) -> None:
    shape = (32,) if nets.describe(name).inputs == "signals" else (3, 32, 32)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = build_narrow(name, shape, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    again, other = build_narrow(name, shape, seed=3), build_narrow(name, shape, seed=4)
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
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(10):
        for rows in train[torch.randperm(1400, generator=draw)].reshape(-1, 35):
            optimizer.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(net(x[rows]), y[rows]))
            optimizer.step()
    with torch.inference_mode():
        accuracy = (net(x[test]).argmax(1) == y[test]).float().mean()
    assert accuracy > 0.93


def test_numpy_integers_are_accepted() -> None:
    net = nets.build("small-conv", input_shape=np.array([1, 8, 8]), outputs=np.int64(4))  # type: ignore[arg-type]
    assert net(batch((1, 8, 8))).shape == (3, 4)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet-18", {}, "did you mean 'resnet18'"),
        ("unheard of", {}, "known: .*small-conv"),
        ("small-conv", {"input_shape": (1, 7, 8)}, r"7 x 8 are too small, expected at least 8 x 8"),
        ("resnet18", {"input_shape": (32, 32)}, r"expected \(channels, height, width\), got \(32, 32\)"),
        ("conv-1d", {"input_shape": (1, 8, 8)}, r"expected \(channels, length\)"),
        ("conv-1d", {"input_shape": (3, 7)}, "7 are too small, expected at least 8"),
        ("mlp400", {"input_shape": ()}, "expected any shape"),
        ("mlp400", {"input_shape": (0,)}, "input_shape: expected a positive integer, got 0"),
        ("mlp400", {"outputs": 2.5}, "outputs: expected a positive integer, got 2.5"),
        ("mlp400", {"width": -1}, "width: expected a positive integer, got -1"),
        (
            "vgg16",
            {"input_shape": (1, 28, 28)},
            "28 x 28 are too small, expected at least 32 x 32; enlarge or pad",
        ),
        (
            "vit-small",
            {"input_shape": (3, 30, 32)},
            "30 x 32 cannot be divided into patches of 4 x 4; pad it to multiples of 4",
        ),
        ("vit-small", {"input_shape": (3, 64, 60)}, "multiples of 8"),
        ("vit-small", {"width": 40}, "width: expected a multiple of 16, got 40"),
    ],
)
def test_invalid_arguments_raise_a_one_line_message(name: str, options: dict[str, object], message: str) -> None:
    settings: dict[str, object] = {"input_shape": (3, 32, 32), "outputs": 10} | options
    with pytest.raises(InputError, match=message) as caught:
        nets.build(name, **settings)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_descriptions_are_complete_and_frozen() -> None:
    for name in nets.names():
        description = nets.describe(name)
        assert description.name == name
        assert description.paper
        assert description.width_meaning
    with pytest.raises(FrozenInstanceError):
        description.name = "other"  # type: ignore[misc]


class UserNetwork(nn.Module):
    """A user's network: layers are not registered in the order of their calls, and there is no ``features`` method."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 2)
        self.features = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.features(x)))  # type: ignore[no-any-return]


def test_features_of_a_users_network_are_the_input_of_its_last_linear_layer() -> None:
    net, x = UserNetwork(), torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(nets.features_of(net, x), torch.tanh(net.features(x)))
    assert not any(part._forward_pre_hooks for part in net.modules())


def test_features_of_a_built_network_come_from_its_method() -> None:
    net = build_narrow("small-conv", (1, 8, 8)).eval()
    x = batch((1, 8, 8))
    assert torch.equal(nets.features_of(net, x), net.features(x))
    body_and_head = nn.Sequential(net.body, net.head)
    assert torch.equal(nets.features_of(body_and_head, x), net.features(x))


def test_features_and_outputs_need_one_forward_pass_and_the_head_maps_between_them() -> None:
    ours, shape = build_narrow("small-conv", (1, 8, 8)).eval(), (1, 8, 8)
    for net, x in (
        (UserNetwork(), torch.randn(3, 6)),
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


def test_features_ignore_copies_of_the_network_that_another_hook_runs() -> None:
    # The meter measures the cost of a network on a copy, in a hook, with two blank examples.
    net = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2))
    net.register_forward_hook(lambda module, *_: (copy.deepcopy(module)[1](torch.zeros(2, 4)), None)[1])
    x = torch.randn(3, 6)
    assert torch.equal(nets.features_of(net, x), net[0](x))


def test_hooks_are_removed_if_the_forward_pass_fails() -> None:
    net = nn.Sequential(nn.Linear(3, 2), nn.Linear(5, 1))
    with pytest.raises(RuntimeError):
        nets.features_of(net, torch.zeros(1, 3))
    assert not any(part._forward_pre_hooks for part in net.modules())


def test_a_network_without_a_linear_layer_is_refused() -> None:
    with pytest.raises(InputError, match="features"):
        nets.features_of(nn.Conv2d(1, 1, 1), torch.zeros(1, 1, 2, 2))


def test_the_table_in_the_documentation_is_correct() -> None:
    page = (Path(__file__).parents[2] / "docs" / "networks.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")] for line in page.splitlines() if line.startswith("| `")]
    assert sorted(row[1].strip("`") for row in rows) == nets.names()
    for _, quoted, paper, count, setting, inputs, width, _ in rows:
        name = quoted.strip("`")
        shape, outputs = setting.split(" → ")
        sides = tuple(int(side) for side in shape.split(" x "))
        description = nets.describe(name)
        assert nets.count_parameters(name, input_shape=sides, outputs=int(outputs)) == int(count.replace(",", ""))
        assert (paper, int(width)) == (description.paper, description.width)
        assert inputs.endswith(" x ".join(map(str, description.minimum)) or "any shape, flattened")


def test_every_network_has_a_one_line_summary() -> None:
    assert set(nets.summaries()) == set(nets.names())
    for name, summary in nets.summaries().items():
        assert 20 < len(summary) <= 90, name
        assert summary.endswith("."), name
        assert not summary.endswith("..."), name


PLUGIN = '''
from torch import nn

from perdure.nets import Network, network


@network("their-net", paper="theirs", minimum=(4, 4), width=3, width_meaning="channels of the convolution")
def their_net(shape, outputs, width):
    """One convolution and a linear head."""
    body = nn.Sequential(nn.Conv2d(shape[0], width, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return Network(body, nn.Linear(width, outputs))
'''
CHECK = """
import sys
from perdure import nets
assert "perdure.nets.vit" not in sys.modules
assert nets.summaries()["their-net"] == "One convolution and a linear head."
assert nets.build("their-net", input_shape=(1, 4, 4), outputs=2).head.in_features == 3
assert "resnet18" in nets.names()
"""


def test_a_network_of_another_package_works_through_its_entry_point(tmp_path: Path) -> None:
    (tmp_path / "their_networks.py").write_text(PLUGIN)
    metadata = tmp_path / "their_networks-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: their-networks\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[perdure.networks]\ntheirs = their_networks\n")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{CHECK}"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
