"""Sharing the first layers and bounding memory do not change the values along an order of players."""

from importlib import import_module

import numpy as np
import pytest
import torch
from torch import nn

from perdure import explain, nets
from perdure.base.errors import InputError
from perdure.explain.shapley.shared_layers import SharedGame


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def game_of(net, shape, *, double=True, **options):
    generator = torch.Generator().manual_seed(1)
    example, baseline = torch.randn(2, *shape, generator=generator)
    if double:
        net, example, baseline = net.double(), example.double(), baseline.double()
    return explain.NetworkGame(net.eval(), example, 1, explain.pixel_players(shape), baseline, **options)


def with_head(*layers, shape=(3, 12, 12)):
    torch.manual_seed(0)
    body = nn.Sequential(*layers, nn.Flatten())
    width = body(torch.zeros(1, *shape)).shape[1]
    return nn.Sequential(*body, nn.Linear(width, 5), nn.ReLU(), nn.Linear(5, 2))


STEMS = {
    "convolution, ReLU, pooling": (nn.Conv2d(3, 4, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3)),
    "pooling before the activation": (nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.Tanh()),
    "padding, no bias": (nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.ReLU(), nn.MaxPool2d(3)),
    "average pooling": (nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AvgPool2d(2)),
    "overlapping windows": (nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(3, stride=2)),
    "strides": (nn.Conv2d(3, 5, 3, stride=2, padding=(1, 0)), nn.LeakyReLU(), nn.MaxPool2d(2)),
    "no pooling": (nn.Conv2d(3, 2, 3), nn.ReLU(inplace=True), nn.Conv2d(2, 4, 3)),
    "a folded norm": (nn.Conv2d(3, 4, 5), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
}


@pytest.mark.parametrize("layers", STEMS.values(), ids=STEMS)
def test_shared_layers_give_the_values_of_the_network(layers):
    game = game_of(with_head(*layers), (3, 12, 12), batch_size=50)
    fast = explain.fast_game(game)
    assert isinstance(fast, SharedGame)
    ranks = np.stack([np.random.default_rng(seed).permutation(144) for seed in range(2)])
    steps = np.arange(1, 144)
    expected = np.stack([game(order[None] < steps[:, None]) for order in ranks])
    np.testing.assert_allclose(fast.values_along_orders(ranks, steps), expected, atol=1e-10)


@pytest.mark.parametrize("estimator", ["castro", "antithetic", "gradient"])
def test_estimates_are_the_same_with_and_without_sharing(estimator):
    net = nets.build("lenet", input_shape=(3, 16, 16), outputs=4)
    game = game_of(net, (3, 16, 16), double=False)
    fast = explain.fast_game(game)
    assert isinstance(fast, SharedGame)
    with_sharing, without = (explain.shapley(variant, 256, 8, estimator) for variant in (fast, game))
    np.testing.assert_allclose(with_sharing.values, without.values, atol=1e-6)
    np.testing.assert_allclose(with_sharing.stderr, without.stderr, atol=1e-6)
    assert with_sharing.evaluations == without.evaluations


class InputUsedTwice(nn.Module):
    """The rest of the network uses the image too, not only the output of the first layers."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(3 * 36, 2))

    def forward(self, x):
        return self.head(self.stem(x)) + x.mean(dim=(2, 3))[:, :2]


class ShapeMatters(nn.Module):
    """The forward pass checks the shape of its input, so it does not accept the output of the first layers."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Linear(4 * 25, 2)

    def forward(self, x):
        if x.shape[1:] != (3, 12, 12):
            raise ValueError("expected images")
        return self.head(self.stem(x).flatten(1))


@pytest.mark.parametrize(
    "net",
    [
        InputUsedTwice(),
        ShapeMatters(),
        with_head(nn.Conv2d(3, 6, 3, groups=3), nn.MaxPool2d(2)),
        with_head(nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), nn.MaxPool2d(2)),
        with_head(nn.Conv2d(3, 40, 3), nn.ReLU()),
        with_head(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True, padding=1)),
    ],
    ids=["input used twice", "shape matters", "groups", "circular", "a map larger than the image", "padded pooling"],
)
def test_networks_whose_first_layers_cannot_be_shared_keep_their_values(net):
    game = game_of(net, (3, 12, 12))
    fast = explain.fast_game(game)
    rows = np.random.default_rng(0).random((7, 144)) < 0.5
    np.testing.assert_allclose(fast(rows), game(rows), atol=1e-10)
    values, expected = (explain.shapley(variant, 144, 2, "castro").values for variant in (fast, game))
    np.testing.assert_allclose(values, expected, atol=1e-10)


def test_nan_with_shared_layers_names_the_example():
    net = with_head(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2))
    fast = explain.fast_game(game_of(net, (3, 12, 12), index=3))
    assert isinstance(fast, SharedGame)
    next(fast.rest.parameters()).data.fill_(float("nan"))
    with pytest.raises(InputError, match=r"example 3: .*NaN"):
        explain.shapley(fast, 144, 2)


@pytest.mark.parametrize("estimator", ["castro", "antithetic", "gradient"])
def test_orders_are_evaluated_in_chunks_of_bounded_memory(estimator, monkeypatch):
    net = with_head(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.MaxPool2d(2))
    game = game_of(net, (3, 12, 12))
    expected = explain.shapley(game, 144, 8, estimator, seed=4)
    sizes = []

    class Recording:
        def __call__(self, rows):
            sizes.append(rows.size)
            return game(rows)

        def gradients(self, rows):
            sizes.append(rows.size)
            return game.gradients(rows)

    for module in ("shapley.estimators", "shapley.gradient"):
        monkeypatch.setattr(import_module(f"perdure.explain.{module}"), "CHUNK_ELEMENTS", 1000)
    chunked = explain.shapley(Recording(), 144, 8, estimator, seed=4)
    assert max(sizes) <= 1000
    np.testing.assert_allclose(chunked.values, expected.values, atol=1e-10)
    np.testing.assert_allclose(chunked.stderr, expected.stderr, atol=1e-10)
