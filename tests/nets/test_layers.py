"""Every activation, addition and product is a module that is called once, as explainers require."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from captum.attr import DeepLift
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from perdure import nets
from perdure.nets.vit import Mix, Scores

WIDTH = {
    "alexnet": 2,
    "resnet101": 4,
    "resnet18": 4,
    "resnet50": 4,
    "vgg16": 2,
    "vgg19": 2,
    "vit-small": 32,
    "wide-resnet": 1,
    "wide-resnet16": 1,
    "wide-resnet40": 1,
}
ACTIVATIONS = (nn.ReLU, nn.GELU, nn.Softmax, nn.MaxPool1d, nn.MaxPool2d)
# The only modules in which an operation may combine two activations, or be an activation function.
ALLOWED_MODULES: dict[str, tuple[type[nn.Module], ...]] = {
    "add": (nets.Add,),
    "mul": (nn.Dropout,),
    "mm": (Scores, Mix),
    "bmm": (Scores, Mix),
    "relu": (nn.ReLU,),
    "gelu": (nn.GELU,),
    "_softmax": (nn.Softmax,),
}


def make(name: str) -> tuple[nets.Network, Tensor]:
    shape = (2, 32) if nets.describe(name).inputs == "signals" else (3, 32, 32)
    net = nets.build(name, input_shape=shape, outputs=4, width=WIDTH.get(name))
    return net, torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))


class OperationWatcher(TorchDispatchMode):
    """Records operations outside their allowed modules, and operations that write into their input."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.parameters = {t.data_ptr() for t in [*net.parameters(), *net.buffers()]}
        self.stack: list[tuple[nn.Module, set[int]]] = []
        self.output_addresses: set[int] = set()
        self.outputs: list[Tensor] = []  # kept alive, so that no address is reused
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        self.counts[name] += 1
        activations = [a for a in args if isinstance(a, Tensor) and a.data_ptr() not in self.parameters]
        pairs = len(activations) > 1 and name in {"add", "sub", "mul", "div", "mm", "bmm", "cat"}
        module, input_addresses = self.stack[-1]
        if (pairs or name in {"relu", "gelu", "_softmax"}) and not isinstance(module, ALLOWED_MODULES.get(name, ())):
            self.violations.append(f"{name} in {type(module).__name__}")
        if name.endswith("_") and activations and activations[0].data_ptr() in input_addresses | self.output_addresses:
            self.violations.append(f"{name} writes into an activation in {type(module).__name__}")
        return func(*args, **(kwargs or {}))

    def enter(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.stack.append((module, {tensor.data_ptr() for tensor in inputs}))

    def leave(self, _: nn.Module, __: Any, output: Tensor) -> None:
        self.stack.pop()
        self.output_addresses.add(output.data_ptr())
        self.outputs.append(output)


def watch(net: nn.Module, x: Tensor) -> tuple[list[str], Counter[str]]:
    """Run the network; return violations and the number of calls of each operation."""
    watcher = OperationWatcher(net)
    handles = [part.register_forward_pre_hook(watcher.enter) for part in net.modules()]
    handles += [part.register_forward_hook(watcher.leave) for part in net.modules()]
    with watcher:
        net(x)
    for handle in handles:
        handle.remove()
    return watcher.violations, watcher.counts


def count_calls(net: nn.Module, x: Tensor, kinds: tuple[type[nn.Module], ...]) -> list[int]:
    counts: Counter[nn.Module] = Counter()
    parts = [part for part in net.modules() if isinstance(part, kinds)]

    def count(part: nn.Module, *_: Any) -> None:
        counts[part] += 1

    handles = [part.register_forward_hook(count) for part in parts]
    net(x)
    for handle in handles:
        handle.remove()
    return [counts[part] for part in parts]


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("name", nets.names())
def test_operations_are_in_their_modules(name: str, mode: str) -> None:
    net, x = make(name)
    violations, counts = watch(net.train(mode == "train"), x)
    assert violations == []
    assert counts["relu"] + counts["gelu"] == len([m for m in net.modules() if isinstance(m, nn.ReLU | nn.GELU)])
    assert counts["relu"] + counts["gelu"] > 0


@pytest.mark.parametrize("name", nets.names())
def test_every_leaf_module_is_called_exactly_once(name: str) -> None:
    net, x = make(name)
    assert set(count_calls(net.eval(), x, (*ACTIVATIONS, nets.Add))) == {1}
    leaves = [part for part in net.modules() if not list(part.children())]
    assert set(count_calls(net, x, tuple({type(leaf) for leaf in leaves}))) == {1}


@pytest.mark.parametrize("name", nets.names())
def test_no_activation_is_in_place(name: str) -> None:
    net, x = make(name)
    assert not any(getattr(part, "inplace", False) for part in net.modules())
    before = x.clone()
    net(x)
    assert torch.equal(x, before)


class Careless(nn.Module):
    """A network with a fault that the watcher must detect."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        faults: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
            "add in Careless": lambda h, x: h + x,
            "mul in Careless": lambda h, x: h * x,
            "relu in Careless": lambda h, x: torch.relu(h),
            "relu_ writes": lambda h, x: torch.relu_(h),
            "mm in Careless": lambda h, x: h @ x.T,
        }
        self.fault = faults[fault]

    def forward(self, x: Tensor) -> Tensor:
        return self.fault(self.linear(x), x)


@pytest.mark.parametrize(
    "fault", ["add in Careless", "mul in Careless", "relu in Careless", "relu_ writes", "mm in Careless"]
)
def test_the_watcher_detects_the_fault(fault: str) -> None:
    violations, _ = watch(Careless(fault), torch.randn(4, 4, generator=torch.Generator().manual_seed(0)))
    assert any(fault in line for line in violations)


# captum has no DeepLift rule for GELU, and its rule for max-pooling counts only one of two overlapping windows.
WITHOUT_RULE = {"vit-small", "alexnet", "resnet50", "resnet101"}


@pytest.mark.parametrize("name", sorted(set(nets.names()) - WITHOUT_RULE))
def test_captum_deeplift_is_complete(name: str) -> None:
    """Attributions sum to f(x) - f(baseline), which requires that captum handles every nonlinear module exactly once.

    captum hooks input and output tensors. If a pooling directly follows an activation, both are one tensor, and the
    rule of the pooling is lost. Copying the input of each nonlinear module separates them.
    """
    net, x = make(name)
    net, x = net.double().eval(), x.double()
    baseline = torch.randn(1, *x.shape[1:], generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    parts = [part for part in net.modules() if isinstance(part, ACTIVATIONS)]
    copies = [part.register_forward_pre_hook(lambda _, inputs: inputs[0].clone()) for part in parts]
    attributions = DeepLift(net).attribute(x, baseline, target=1)
    for copy in copies:
        copy.remove()
    difference = (net(x) - net(baseline))[:, 1]
    torch.testing.assert_close(attributions.flatten(1).sum(1), difference, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", nets.names())
def test_torch_fx_can_trace_every_network(name: str) -> None:
    net, x = make(name)
    traced = torch.fx.symbolic_trace(net.eval())
    torch.testing.assert_close(traced(x), net(x))
