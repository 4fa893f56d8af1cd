"""Blocks of the networks against their formulas, written with torch functions instead of modules."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from perdure import nets
from perdure.nets.bottleneck import Bottleneck
from perdure.nets.resnet import BasicBlock, resnet_projection, resnet_zero_padding
from perdure.nets.vit import Attention
from perdure.nets.wide_resnet import WideBlock


def prepare(module: nn.Module) -> nn.Module:
    """Give batch norm layers random statistics and parameters, and switch to evaluation mode."""
    draw = torch.Generator().manual_seed(3)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            for tensor in (part.weight.data, part.bias.data, part.running_mean, part.running_var):
                assert isinstance(tensor, Tensor)
                tensor.uniform_(0.5, 1.5, generator=draw)
    return module.eval()


def norm(x: Tensor, layer: nn.Module) -> Tensor:
    assert isinstance(layer, nn.BatchNorm2d)
    return functional.batch_norm(x, layer.running_mean, layer.running_var, layer.weight, layer.bias)


def image(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def test_basic_block_with_projection() -> None:
    block = prepare(BasicBlock(3, 6, stride=2, shortcut=resnet_projection(3, 6, stride=2)))
    x, get = image(2, 3, 9, 8), block.get_submodule
    h = norm(
        functional.conv2d(x, block.state_dict()["residual.conv1.weight"], stride=2, padding=1),
        get("residual.norm1"),
    )
    h = functional.conv2d(functional.relu(h), block.state_dict()["residual.conv2.weight"], padding=1)
    shortcut = norm(functional.conv2d(x, block.state_dict()["shortcut.conv.weight"], stride=2), get("shortcut.norm"))
    torch.testing.assert_close(block(x), functional.relu(norm(h, get("residual.norm2")) + shortcut))


def test_shortcut_a_selects_every_second_pixel_and_pads_channels_with_zeros() -> None:
    x = image(2, 3, 9, 8)
    expected = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 1, 2))
    assert torch.equal(resnet_zero_padding(3, 6, stride=2)(x), expected)
    assert resnet_zero_padding(3, 3, stride=1)(x) is x


def test_bottleneck_has_its_stride_on_the_middle_convolution() -> None:
    block = prepare(Bottleneck(4, 8, 2))
    x, weights, get = image(2, 4, 8, 8), block.state_dict(), block.get_submodule
    h = functional.relu(norm(functional.conv2d(x, weights["residual.conv1.weight"]), get("residual.norm1")))
    h = functional.conv2d(h, weights["residual.conv2.weight"], stride=2, padding=1)
    h = functional.conv2d(functional.relu(norm(h, get("residual.norm2"))), weights["residual.conv3.weight"])
    shortcut = norm(functional.conv2d(x, weights["shortcut.conv.weight"], stride=2), get("shortcut.norm"))
    torch.testing.assert_close(block(x), functional.relu(norm(h, get("residual.norm3")) + shortcut))


def test_wide_block_projects_the_activated_input() -> None:
    block = prepare(WideBlock(4, 6, 2))
    x, weights, get = image(2, 4, 8, 8), block.state_dict(), block.get_submodule
    activated = functional.relu(norm(x, get("open.norm")))
    h = functional.conv2d(activated, weights["residual.conv1.weight"], stride=2, padding=1)
    h = functional.conv2d(functional.relu(norm(h, get("residual.norm"))), weights["residual.conv2.weight"], padding=1)
    torch.testing.assert_close(block(x), h + functional.conv2d(activated, weights["shortcut.weight"], stride=2))


def test_wide_block_with_unchanged_shape_adds_its_input() -> None:
    block = prepare(WideBlock(4, 4, 1))
    x = image(2, 4, 8, 8)
    torch.testing.assert_close(block(x) - x, block.get_submodule("residual")(block.get_submodule("open")(x)))


def test_attention_equals_torch_multihead_attention() -> None:
    attention, peer = Attention(48).eval(), nn.MultiheadAttention(48, 3, batch_first=True).eval()
    weights = attention.state_dict()
    names = ("queries", "keys", "values")
    with torch.no_grad():
        peer.in_proj_weight.copy_(torch.cat([weights[f"{name}.linear.weight"] for name in names]))
        peer.in_proj_bias.copy_(torch.cat([weights[f"{name}.linear.bias"] for name in names]))
        peer.out_proj.weight.copy_(weights["merge.out.weight"])
        peer.out_proj.bias.copy_(weights["merge.out.bias"])
    x = image(2, 5, 48)
    torch.testing.assert_close(attention(x), peer(x, x, x, need_weights=False)[0], rtol=1e-4, atol=1e-5)


def test_stages_halve_the_map_and_double_the_channels() -> None:
    net = nets.build("resnet18", input_shape=(3, 32, 32), outputs=2, width=8).eval()
    x = net.body.get_submodule("stem")(image(1, 3, 32, 32))
    shapes = []
    for number in range(1, 5):
        x = net.body.get_submodule(f"stage{number}")(x)
        shapes.append(tuple(x.shape[1:]))
    assert shapes == [(8, 32, 32), (16, 16, 16), (32, 8, 8), (64, 4, 4)]


def test_position_embedding_distinguishes_shuffled_patches() -> None:
    """Without position embedding, a transformer that averages its tokens cannot distinguish shuffled patches."""
    net = nets.build("vit-small", input_shape=(1, 8, 8), outputs=3, width=16).eval()
    x = image(1, 1, 8, 8)
    shuffled = torch.cat([x[..., 4:, :], x[..., :4, :]], dim=2)  # whole patches change position
    assert not torch.allclose(net(x), net(shuffled), atol=1e-6)
    nn.init.zeros_(net.body.get_parameter("position.offset"))
    torch.testing.assert_close(net(x), net(shuffled), rtol=1e-4, atol=1e-5)
