"""Registration of explainers: declared requirements, options, plug-ins of other packages, and truthful declarations."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from perdure import explain
from perdure.base import registry as registry_module
from perdure.base.errors import InputError
from perdure.base.registry import Registry
from perdure.explain import EXPLAINERS, Gradients, Outputs, Request, explainer

DOCS = Path(__file__).parents[2] / "docs" / "explainers.md"


@pytest.fixture
def restored_registry() -> Iterator[None]:
    """Remove explainers that a test registers."""
    EXPLAINERS.names()  # the built-in ones are loaded first
    entries, summaries = dict(EXPLAINERS._entries), dict(EXPLAINERS._summaries)
    yield
    EXPLAINERS._entries, EXPLAINERS._summaries = entries, summaries


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)).eval()


def examples(count: int = 2, seed: int = 1) -> Tensor:
    return torch.randn(count, 5, generator=torch.Generator().manual_seed(seed))


@pytest.mark.usefixtures("restored_registry")
def test_a_registered_function_is_a_method_of_attribute_and_of_the_checker():
    @explainer("my", needs=Outputs(), stochastic=False)
    def doubled(request: Request, factor: float = 2.0) -> Tensor:
        """Return the input times a factor.

        Not in the summary.
        """
        request.report(len(request.x))
        return request.x * factor

    assert doubled.__name__ == "doubled"  # the decorator returns the function itself
    assert "my" in explain.method_names()
    assert EXPLAINERS.summaries()["my"] == "Return the input times a factor."
    x = examples()
    torch.testing.assert_close(explain.attribute(network(), x, 0, "my"), 2 * x)
    torch.testing.assert_close(explain.attribute(network(), x, 0, "my", options={"factor": 3}), 3 * x)
    assert explain.get_explainer("my").defaults == {"factor": 2.0}
    dropout = nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.5), nn.Linear(4, 3)).train()
    with pytest.raises(InputError, match=r"method 'my': layer '1': Dropout is in training mode.*call model.eval\(\)"):
        explain.attribute(dropout, x, 0, "my")
    assert all("my" in finding.methods for finding in explain.check_network(dropout, x))


def test_explainers_of_other_tests_are_removed():
    assert "my" not in explain.method_names()
    with pytest.raises(InputError, match="method: unknown name 'my'"):
        explain.attribute(network(), examples(), 0, "my")


@pytest.mark.usefixtures("restored_registry")
def test_the_declared_requirement_decides_which_networks_are_refused():
    class Detached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 3)

        def forward(self, x):
            return self.layer(x.detach())

    def identity(request: Request, differentiate: bool = False) -> Tensor:
        return request.x * (1 + differentiate)

    explainer("outputs", needs=Outputs(), stochastic=False)(identity)
    explainer("gradients", needs=Gradients(), stochastic=False)(identity)
    explainer("either", needs=lambda options: Gradients() if options["differentiate"] else Outputs(), stochastic=False)(
        identity
    )
    net, x = Detached().eval(), examples()
    for method in ("outputs", "either"):
        torch.testing.assert_close(explain.attribute(net, x, 0, method), x)
    for method, options in (("gradients", None), ("either", {"differentiate": True})):
        with pytest.raises(InputError, match=f"method '{method}': layer 'layer': the output has no gradient"):
            explain.attribute(net, x, 0, method, options=options)


@pytest.mark.usefixtures("restored_registry")
def test_an_incomplete_declaration_is_refused():
    def identity(request: Request) -> Tensor:
        return request.x

    def untyped(request: Request, epsilon=1.0) -> Tensor:
        return request.x.mul(epsilon)

    def without_default(request: Request, epsilon: float) -> Tensor:
        return request.x * epsilon

    incomplete: Any = explainer
    with pytest.raises(TypeError, match="needs"):
        incomplete("my", stochastic=False)(identity)
    with pytest.raises(TypeError, match="stochastic"):
        incomplete("my", needs=Outputs())(identity)
    with pytest.raises(InputError, match=r"explainer 'my': needs must be a requirement such as Gradients\(\)"):
        incomplete("my", needs=Gradients, stochastic=False)(identity)  # the class, not an instance
    with pytest.raises(InputError, match="explainer 'my': needs must be"):
        incomplete("my", needs=None, stochastic=False)(identity)
    with pytest.raises(InputError, match="explainer 'my': stochastic must be True or False, got None"):
        incomplete("my", needs=Outputs(), stochastic=None)(identity)
    for function in (untyped, without_default):
        with pytest.raises(InputError, match="explainer 'my': option 'epsilon' needs a type and a default value"):
            explainer("my", needs=Outputs(), stochastic=False)(function)
    assert "my" not in explain.method_names()
    with pytest.raises(InputError, match="method 'lrp' is registered twice"):
        explainer("lrp", needs=Outputs(), stochastic=False)(identity)


def test_options_are_converted_from_strings():
    net, x = network(), examples()
    expected = explain.attribute(net, x, 1, "lrp", options={"epsilon": 1e-6})
    assert torch.equal(explain.attribute(net, x, 1, "lrp", options={"epsilon": "1e-6"}), expected)
    assert not torch.allclose(explain.attribute(net, x, 1, "lrp"), expected, rtol=1e-2)


@pytest.mark.usefixtures("restored_registry")
def test_options_have_their_declared_type_or_are_refused():
    @explainer("my", needs=Outputs(), stochastic=False)
    def identity(
        request: Request, scale: float = 1.0, count: int = 1, sign: bool = True, kind: str = "plain"
    ) -> Tensor:
        return request.x if sign and kind and count else request.x * scale

    my = explain.get_explainer("my")
    parsed = my.parsed_options({"scale": 2, "count": "3", "sign": "False", "kind": "other"})
    assert parsed == {"scale": 2.0, "count": 3, "sign": False, "kind": "other"}
    assert [type(value) for value in parsed.values()] == [float, int, bool, str]
    assert my.parsed_options({"count": 4.0}) == {"count": 4}
    assert my.parsed_options(None) == {}
    for name, value, kind in [
        ("scale", "big", "float"),
        ("scale", None, "float"),
        ("scale", True, "float"),
        ("count", 2.5, "int"),
        ("count", "2.5", "int"),
        ("count", float("inf"), "int"),
        ("sign", "maybe", "bool"),
        ("sign", 1, "bool"),
        ("kind", 3, "str"),
    ]:
        with pytest.raises(InputError, match=f"method 'my': option '{name}' must be a {kind}, got {value!r}"):
            explain.attribute(network(), examples(), 0, "my", options={name: value})


def test_an_unknown_option_names_the_closest_known_one():
    with pytest.raises(InputError, match="method 'lrp': there is no option 'epsilo'; did you mean 'epsilon'"):
        explain.attribute(network(), examples(), 0, "lrp", options={"epsilo": 1.0})
    with pytest.raises(InputError, match="method 'grad': there is no option 'epsilon'; it has none"):
        explain.attribute(network(), examples(), 0, "grad", options={"epsilon": 1.0})


@dataclass(frozen=True)
class FakeEntryPoint:
    """An entry point whose ``load`` registers an explainer, or fails."""

    name: str
    registry: Registry[Any]
    error: Exception | None = None

    def load(self) -> None:
        if self.error is not None:
            raise self.error
        self.registry.add(self.name, f"entry {self.name}")


def test_a_plug_in_that_fails_to_import_does_not_stop_the_others(monkeypatch):
    registry: Registry[Any] = Registry("method", group="perdure.explainers")
    plug_ins = [
        FakeEntryPoint("first", registry),
        FakeEntryPoint("broken", registry, ImportError("no module named 'missing'")),
        FakeEntryPoint("last", registry),
    ]
    groups = []

    def entry_points(*, group: str) -> list[FakeEntryPoint]:
        groups.append(group)
        return plug_ins

    monkeypatch.setattr(registry_module, "entry_points", entry_points)
    with pytest.warns(UserWarning, match="method 'broken' could not be loaded: no module named 'missing'"):
        assert registry.names() == ["first", "last"]
    assert groups == ["perdure.explainers"]
    assert registry.get("last") == "entry last"
    assert EXPLAINERS.group == "perdure.explainers"


def test_an_explainer_of_an_installed_package_is_found(tmp_path):
    """A package with an entry point in the group ``perdure.explainers``, and one that fails to import, in a new process."""
    plug_in = """
        from torch import Tensor
        from perdure.explain import Outputs, Request, explainer

        @explainer("constant", needs=Outputs(), stochastic=False)
        def constant(request: Request, value: float = 1.0) -> Tensor:
            return request.x * 0 + value
    """
    (tmp_path / "plug_in.py").write_text(textwrap.dedent(plug_in))
    for name, module in (("working", "plug_in"), ("broken", "module_that_does_not_exist")):
        information = tmp_path / f"{name}-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text(f"[perdure.explainers]\n{name} = {module}\n")
    program = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import torch
        from perdure import explain
        assert "grad" in explain.method_names()
        maps = explain.attribute(torch.nn.Linear(2, 2), torch.ones(1, 2), 0, "constant", options={{"value": 3}})
        print(maps.tolist())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "[[3.0, 3.0]]"
    assert "method 'broken' could not be loaded: No module named 'module_that_does_not_exist'" in done.stderr


@pytest.mark.parametrize("method", explain.method_names())
def test_stochastic_states_whether_the_map_depends_on_the_seed(method):
    generator = torch.Generator().manual_seed(0)
    image, background = torch.randn(2, 1, 6, 6, generator=generator), torch.randn(5, 1, 6, 6, generator=generator)
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 8), nn.ReLU(), nn.Linear(8, 3)
    ).eval()
    players = torch.arange(36).reshape(1, 6, 6) // 6

    def maps(seed: int) -> Tensor:
        return explain.attribute(
            net, image, 1, method, background=background, samples=6, seed=seed, players=players, batch_size=50
        )

    first = maps(0)
    assert torch.equal(first, maps(0))
    assert torch.equal(first, maps(1)) == (not explain.get_explainer(method).stochastic)


def smoothgrad_file() -> str:
    """Return the complete file in the docstring of the module that defines explainers."""
    lines = (sys.modules[explain.Explainer.__module__].__doc__ or "").splitlines()
    start = next(index for index, line in enumerate(lines) if line.endswith("::")) + 1
    end = next(index for index, line in enumerate(lines) if index > start and line and not line.startswith(" "))
    return textwrap.dedent("\n".join(lines[start:end])).strip() + "\n"


def test_the_documentation_shows_the_same_file():
    assert f"```python\n{smoothgrad_file()}```" in DOCS.read_text()


@pytest.mark.usefixtures("restored_registry")
def test_the_documented_explainer_works_as_a_single_file():
    """SmoothGrad: the gradient of a linear network, the mean of the gradients at the noisy copies of another."""
    EXPLAINERS._entries.pop("smoothgrad", None)  # the file may exist
    exec(compile(smoothgrad_file(), "smoothgrad.py", "exec"), {"__name__": "smoothgrad"})
    x = examples(3)
    linear = nn.Linear(5, 3).eval()
    expected = linear.weight[1].detach().expand(3, 5)
    torch.testing.assert_close(explain.attribute(linear, x, 1, "smoothgrad", samples=7), expected)

    points: list[Tensor] = []

    class Cubic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, inputs):
            if len(inputs) == 40:
                points.append(inputs.detach())
            return torch.stack([inputs.sum(1), (inputs**3).sum(1)], dim=1) * self.scale

    maps = explain.attribute(Cubic(), x, 1, "smoothgrad", samples=40, batch_size=40, options={"noise": 0.2})
    torch.testing.assert_close(maps, torch.stack([3 * (copies**2).mean(0) for copies in points]))
    spread = torch.stack([(copies - example).std() for copies, example in zip(points, x, strict=True)])
    torch.testing.assert_close(spread, 0.2 * (x.amax(1) - x.amin(1)), rtol=0.2, atol=0)

    net = network()
    maps = explain.attribute(net, x, 1, "smoothgrad", samples=20, seed=3)
    assert not torch.equal(maps, explain.attribute(net, x, 1, "smoothgrad", samples=20, seed=4))
    for batch_size in (1, 7):
        batched = explain.attribute(net, x, 1, "smoothgrad", samples=20, seed=3, batch_size=batch_size)
        torch.testing.assert_close(batched, maps, atol=1e-5, rtol=0)
    reversed_maps = explain.attribute(net, x.flip(0), 1, "smoothgrad", samples=20, seed=3)
    torch.testing.assert_close(reversed_maps.flip(0), maps, atol=1e-6, rtol=0)
    with pytest.raises(InputError, match="there is no option 'nois'; did you mean 'noise'"):
        explain.attribute(net, x, 1, "smoothgrad", options={"nois": 0.1})
