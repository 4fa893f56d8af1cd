"""Small networks in the styles in which people write them, each beside the same network written with modules only.

The modular version is written by hand and uses the layers of the written one, with a separate module for every activation,
addition and pooling. It is the oracle for networks that are rewritten automatically.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

IMAGE = (3, 12, 12)
SIGNAL = (2, 24)
RULES = frozenset({"deepshap", "lrp", "guided_backprop"})


@dataclass(frozen=True)
class Style:
    """A way to write a network: the class, the same network in modules, and the methods that are defined on it."""

    text: str
    written: Callable[..., nn.Module]
    shape: tuple[int, ...] = IMAGE
    methods: frozenset[str] = RULES

    def networks(self, seed: int = 0) -> tuple[nn.Module, nn.Module]:
        """Return the network and its modular version with equal weights, in evaluation mode."""
        torch.manual_seed(seed)
        written: Any = self.written(self.shape[-1])
        written.eval()
        for norm in written.modules():
            if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d):
                randomize(norm)
        return written, deepcopy(written).modular().eval()

    def inputs(self, examples: int, seed: int = 1) -> Tensor:
        """Return random inputs."""
        return torch.randn(examples, *self.shape, generator=torch.Generator().manual_seed(seed))


def randomize(norm: Any) -> None:
    """Give a batch norm statistics and parameters as after training."""
    norm.running_mean.data.uniform_(-0.5, 0.5)
    norm.running_var.data.uniform_(0.5, 2)
    norm.weight.data.uniform_(0.5, 1.5)
    norm.bias.data.uniform_(-0.5, 0.5)


class Sum(nn.Module):
    """The sum of two branches."""

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Return left + right."""
        return left + right


class Residual(nn.Module):
    """after(before + shortcut(x)), where before is body(stem(x)); the shortcut starts at x or, if asked, after the stem."""

    def __init__(self, stem: nn.Module, body: nn.Module, shortcut: nn.Module, after: nn.Module, late: bool = False):
        super().__init__()
        self.stem, self.body, self.shortcut, self.add, self.after, self.late = stem, body, shortcut, Sum(), after, late

    def forward(self, x: Tensor) -> Any:
        """Return the block's output."""
        h = self.stem(x)
        return self.after(self.add(self.body(h), self.shortcut(h if self.late else x)))


class Pooled(nn.Module):
    """A body, global average pooling and a linear layer."""

    def __init__(self, *body: nn.Module, head: nn.Module):
        super().__init__()
        self.body, self.pool, self.flatten, self.head = (
            nn.Sequential(*body),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            head,
        )

    def forward(self, x: Tensor) -> Any:
        """Return logits."""
        return self.head(self.flatten(self.pool(self.body(x))))


class FunctionalLeNet(nn.Module):
    """`F.relu`, `F.max_pool2d`, `F.dropout` and `view` with the batch size, as in PyTorch's tutorial."""

    def __init__(self, size: int = 12) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 6, 3), nn.Conv2d(6, 8, 2)
        self.fc1, self.fc2 = nn.Linear(8 * ((size // 2 - 2) // 2) ** 2, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Any:
        """Return logits."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), (2, 2))
        x = x.view(x.size(0), -1)
        x = F.dropout(F.relu(self.fc1(x)), training=self.training)
        return self.fc2(x)

    def modular(self) -> nn.Module:
        """Return the network in modules."""
        convolutions = (self.conv1, nn.ReLU(), nn.MaxPool2d(2), self.conv2, nn.ReLU(), nn.MaxPool2d(2))
        return nn.Sequential(*convolutions, nn.Flatten(), self.fc1, nn.ReLU(), self.fc2)


class InPlace(nn.Module):
    """`nn.ReLU(inplace=True)`, `F.relu(h, inplace=True)` whose result is read from h, and `relu_`."""

    def __init__(self, size: int = 12) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(inplace=True), nn.Conv2d(6, 8, 3))
        self.norm, self.pool = nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d((2, 2))
        self.fc1, self.fc2 = nn.Linear(32, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Any:
        """Return logits."""
        h = self.norm(self.features(x))
        F.relu(h, inplace=True)
        return self.fc2(self.fc1(torch.flatten(self.pool(h), 1)).relu_())

    def modular(self) -> nn.Module:
        """Return the network in modules."""
        body = (self.features[0], nn.ReLU(), self.features[2], self.norm, nn.ReLU(), self.pool)
        return nn.Sequential(*body, nn.Flatten(), self.fc1, nn.ReLU(), self.fc2)


class SharedModules(nn.Module):
    """One activation, one pooling and one convolution that are used several times."""

    def __init__(self, size: int = 12) -> None:
        super().__init__()
        self.stem, self.conv = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)
        self.act, self.pool, self.head = nn.ReLU(), nn.MaxPool2d(2), nn.Linear(6 * (size // 4) ** 2, 4)

    def forward(self, x: Tensor) -> Any:
        """Return logits."""
        x = self.pool(self.act(self.stem(x)))
        x = self.act(self.conv(x))
        x = self.pool(self.act(self.conv(x)))
        return self.head(x.flatten(1))

    def modular(self) -> nn.Module:
        """Return the network in modules."""
        first = (self.stem, nn.ReLU(), nn.MaxPool2d(2), self.conv, nn.ReLU())
        return nn.Sequential(*first, deepcopy(self.conv), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), self.head)


class BasicBlock(nn.Module):
    """The block of torchvision's ResNet-18: one ReLU in place, used twice, and `out += identity`."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Any:
        """Return the block's output."""
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)

    def modular(self) -> nn.Module:
        """Return the block in modules."""
        body = nn.Sequential(self.conv1, self.bn1, nn.ReLU(), self.conv2, self.bn2)
        return Residual(nn.Identity(), body, self.downsample or nn.Identity(), nn.ReLU())


class ResNet(nn.Module):
    """torchvision's ResNet-18, narrow and shallow."""

    def __init__(self, size: int = 12) -> None:
        super().__init__()
        self.conv1, self.bn1, self.relu = nn.Conv2d(3, 4, 3, 1, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True)
        self.layer1, self.layer2 = nn.Sequential(BasicBlock(4, 4)), nn.Sequential(BasicBlock(4, 8, 2), BasicBlock(8, 8))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Any:
        """Return logits."""
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.avgpool(self.layer2(self.layer1(x)))
        return self.fc(torch.flatten(x, 1))

    def modular(self) -> nn.Module:
        """Return the network in modules."""
        blocks = [block.modular() for block in (*self.layer1, *self.layer2)]
        return Pooled(self.conv1, self.bn1, nn.ReLU(), *blocks, head=self.fc)


class Bottleneck(nn.Module):
    """A bottleneck with `F.relu`, a plain `+` and global pooling through `mean`."""

    def __init__(self, size: int = 12) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.reduce, self.conv, self.expand = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 8, 1)
        self.bn1, self.bn2, self.bn3, self.fc = nn.BatchNorm2d(4), nn.BatchNorm2d(4), nn.BatchNorm2d(8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Any:
        """Return logits."""
        x = F.avg_pool2d(F.relu(self.stem(x)), 2)
        out = F.relu(self.bn1(self.reduce(x)))
        out = self.bn2(self.conv(out)).relu()
        out = torch.relu(self.bn3(self.expand(out)) + x)
        return self.fc(out.mean((2, 3)))

    def modular(self) -> nn.Module:
        """Return the network in modules."""
        body = (self.reduce, self.bn1, nn.ReLU(), self.conv, self.bn2, nn.ReLU(), self.expand, self.bn3)
        block = Residual(nn.Identity(), nn.Sequential(*body), nn.Identity(), nn.ReLU())
        return Pooled(self.stem, nn.ReLU(), nn.AvgPool2d(2), block, head=self.fc)


class PreActivation(nn.Module):
    """A pre-activation block. Its ReLU in place also changes the shortcut, as in the network the user runs."""

    def __init__(self, size: int = 12) -> None:
        super().__init__()
        self.stem, self.conv1, self.conv2 = (nn.Conv2d(width, 6, 3, padding=1) for width in (3, 6, 6))
        self.relu, self.head = nn.ReLU(inplace=True), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Any:
        """Return logits."""
        x = self.stem(x)
        out = self.conv1(self.relu(x))
        out = self.conv2(self.relu(out))
        return self.head(torch.add(out, x).mean(dim=[-2, -1]))

    def modular(self) -> nn.Module:
        """Return the network in modules."""
        body = nn.Sequential(self.conv1, nn.ReLU(), self.conv2)
        return Pooled(self.stem, Residual(nn.ReLU(), body, nn.Identity(), nn.Identity(), late=True), head=self.head)


class ReluInsideShortcut(nn.Module):
    """A tensor that enters a functional ReLU and an addition: its gradient has two parts."""

    def __init__(self, size: int = 12) -> None:
        super().__init__()
        self.stem, self.conv, self.head = nn.Conv2d(3, 6, 3), nn.Conv2d(6, 6, 3, padding=1), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Any:
        """Return logits."""
        h = self.stem(x)
        h = h + self.conv(F.relu(h))
        return self.head(F.relu(h).mean((2, 3), keepdim=True).squeeze(-1).squeeze(-1))

    def modular(self) -> nn.Module:
        """Return the network in modules."""
        block = Residual(nn.Identity(), nn.Sequential(nn.ReLU(), self.conv), nn.Identity(), nn.ReLU())
        return Pooled(self.stem, block, head=self.head)


class Depthwise(nn.Module):
    """MobileNet's inverted residual with depthwise convolutions, written in a loop over a ModuleList."""

    def __init__(self, size: int = 12) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, 2, 1, bias=False)
        self.expand = nn.ModuleList(nn.Conv2d(4, 12, 1, bias=False) for _ in range(2))
        self.depthwise = nn.ModuleList(nn.Conv2d(12, 12, 3, 1, 1, groups=12, bias=False) for _ in range(2))
        self.project = nn.ModuleList(nn.Conv2d(12, 4, 1, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2) for width in (12, 12, 4))
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Any:
        """Return logits."""
        x = self.stem(x)
        for i in range(2):
            h = F.relu(self.norms[3 * i](self.expand[i](x)))
            h = F.relu(self.norms[3 * i + 1](self.depthwise[i](h)), True)
            x = x + self.norms[3 * i + 2](self.project[i](h))
        return self.fc(F.adaptive_avg_pool2d(x, 1).reshape(x.shape[0], -1))

    def modular(self) -> nn.Module:
        """Return the network in modules."""
        blocks = []
        for i in range(2):
            wide = (self.expand[i], self.norms[3 * i], nn.ReLU(), self.depthwise[i], self.norms[3 * i + 1], nn.ReLU())
            body = nn.Sequential(*wide, self.project[i], self.norms[3 * i + 2])
            blocks.append(Residual(nn.Identity(), body, nn.Identity(), nn.Identity()))
        return Pooled(self.stem, *blocks, head=self.fc)


class OwnLinear(nn.Module):
    """A layer with own parameters and `F.linear`."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)
        self.bias = nn.Parameter(torch.randn(outputs) / 4)

    def forward(self, x: Tensor) -> Any:
        """Return the layer's output."""
        return F.linear(x, self.weight, self.bias)


class OwnParameters(nn.Module):
    """`F.conv2d`, `F.batch_norm`, `F.linear` and `@` with parameters of the user's own modules."""

    def __init__(self, size: int = 12) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(6, 3, 3, 3) / 5)
        self.norm = nn.BatchNorm2d(6)
        self.fc = OwnLinear(6 * (size // 4) ** 2, 16)
        self.matrix = nn.Parameter(torch.randn(16, 4) / 4)

    def forward(self, x: Tensor) -> Any:
        """Return logits."""
        x = F.conv2d(x, self.kernel, stride=2, padding=1)
        norm = self.norm
        x = F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, training=self.training)
        x = F.max_pool2d(x.clamp(min=0), kernel_size=2, stride=2)
        return F.relu(self.fc(x.flatten(start_dim=1))) @ self.matrix

    def modular(self) -> nn.Module:
        """Return the network in modules."""
        conv, fc, head = (
            nn.Conv2d(3, 6, 3, 2, 1, bias=False),
            nn.Linear(self.fc.weight.shape[1], 16),
            nn.Linear(16, 4, bias=False),
        )
        conv.weight, fc.weight, fc.bias = self.kernel, self.fc.weight, self.fc.bias
        head.weight = nn.Parameter(self.matrix.detach().t())
        return nn.Sequential(conv, self.norm, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), fc, nn.ReLU(), head)


class Dense(nn.Module):
    """DenseNet's concatenation, with the nested functions of its forward pass."""

    def __init__(self, size: int = 12) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(3 + 3 * i, 3, 3, padding=1) for i in range(3))
        self.fc = nn.Linear(12 * (size // 4) ** 2, 4)

    def forward(self, x: Tensor) -> Any:
        """Return logits."""
        features = [x]
        for conv in self.convs:
            features.append(F.relu(conv(torch.cat(features, 1))))
        pooled = F.avg_pool2d(torch.cat(features, dim=1), 4)
        return self.fc(pooled.reshape(-1, pooled.shape[1:].numel()))

    def modular(self) -> nn.Module:
        """Return the network in modules."""
        return DenseModules(self.convs, self.fc)


class DenseModules(nn.Module):
    """Dense in modules; concatenations move values and need none."""

    def __init__(self, convs: nn.ModuleList, fc: nn.Module) -> None:
        super().__init__()
        self.convs, self.acts, self.fc = convs, nn.ModuleList(nn.ReLU() for _ in convs), fc
        self.pool, self.flatten = nn.AvgPool2d(4), nn.Flatten()

    def forward(self, x: Tensor) -> Any:
        """Return logits."""
        for conv, act in zip(self.convs, self.acts, strict=True):
            x = torch.cat([x, act(conv(x))], 1)
        return self.fc(self.flatten(self.pool(x)))


class Signal(nn.Module):
    """A 1-D network with unpacked shapes, `permute`, pooling functions and a condition on the input's size."""

    def __init__(self, size: int = 12) -> None:
        super().__init__()
        self.conv1, self.conv2, self.fc = nn.Conv1d(2, 6, 3, padding=1), nn.Conv1d(6, 8, 3, padding=1), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Any:
        """Return logits."""
        batch, channels, time = x.shape
        if channels > time:
            x = x.transpose(1, 2)
        x = F.max_pool1d(F.relu(self.conv1(x)), 2)
        x = F.avg_pool1d(F.relu(self.conv2(x)), 3).permute(0, 2, 1)
        x = F.adaptive_avg_pool1d(x.permute(0, 2, 1), 1).squeeze(2)
        return self.fc(x.view(batch, 8))

    def modular(self) -> nn.Module:
        """Return the network in modules."""
        convolutions = (self.conv1, nn.ReLU(), nn.MaxPool1d(2), self.conv2, nn.ReLU(), nn.AvgPool1d(3))
        return nn.Sequential(*convolutions, nn.AdaptiveAvgPool1d(1), nn.Flatten(), self.fc)


class TanhLoop(nn.Module):
    """A multilayer perceptron in a loop with one `torch.tanh` for all layers."""

    def __init__(self, size: int = 12) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in ((8, 12), (12, 12), (12, 4)))

    def forward(self, x: Tensor) -> Any:
        """Return logits."""
        for layer in self.layers[:-1]:
            x = torch.tanh(layer(x))
        return self.layers[-1](x)

    def modular(self) -> nn.Module:
        """Return the network in modules."""
        first, second, last = self.layers
        return nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), last)


class SmoothActivations(nn.Module):
    """Leaky ReLU, ELU, sigmoid and softplus as functions."""

    def __init__(self, size: int = 12) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Any:
        """Return logits."""
        a, b, c, d = self.layers
        x = F.elu(b(F.leaky_relu(a(x), 0.2)))
        return self.head(F.softplus(d(torch.sigmoid(c(x)))))

    def modular(self) -> nn.Module:
        """Return the network in modules."""
        a, b, c, d = self.layers
        return nn.Sequential(a, nn.LeakyReLU(0.2), b, nn.ELU(), c, nn.Sigmoid(), d, nn.Softplus(), self.head)


STYLES = {
    "functional": Style("F.relu, F.max_pool2d, F.dropout, view", FunctionalLeNet),
    "in place": Style("ReLU(inplace=True), F.relu(h, inplace=True), relu_", InPlace),
    "reused modules": Style("one ReLU, pooling and convolution used several times", SharedModules),
    "torchvision ResNet": Style("reused ReLU in place, out += identity", ResNet),
    "bottleneck": Style("F.relu, plain +, mean((2, 3))", Bottleneck),
    "pre-activation": Style("ReLU in place that changes the shortcut", PreActivation),
    "ReLU beside a shortcut": Style("h + conv(F.relu(h))", ReluInsideShortcut),
    "depthwise": Style("MobileNet blocks in a ModuleList", Depthwise),
    "own parameters": Style("F.conv2d, F.batch_norm, F.linear, @ with own parameters", OwnParameters),
    "dense": Style("torch.cat in a loop, F.avg_pool2d", Dense),
    "signal": Style("1-D pooling functions, unpacked shape", Signal, shape=SIGNAL),
    "tanh": Style("torch.tanh in a loop", TanhLoop, shape=(8,), methods=RULES - {"guided_backprop"}),
    "smooth": Style(
        "F.elu, F.leaky_relu, torch.sigmoid, F.softplus", SmoothActivations, shape=(8,), methods=frozenset({"deepshap"})
    ),
}
"""Every style people write, by name."""
