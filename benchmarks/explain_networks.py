"""Rule-based explanations of networks as people write them, compared with captum on the same networks in one run.

Ten examples and 50 background examples per network. Measured are the completeness of DeepSHAP, the conservation of LRP when
the relevance absorbed by epsilon and biases is counted, the difference of maps from those of the same network written by hand
with modules only, and the time to rewrite a network relative to the time to explain ten examples. The comparisons of make bench
are computed from the same errors, and from the CPU times on networks that both explain correctly.

    OMP_NUM_THREADS=1 python benchmarks/explain_networks.py [--repeats N]
"""

from __future__ import annotations

import argparse
import copy
import platform
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import torch
from captum.attr import LRP, DeepLiftShap, GuidedBackprop
from captum.attr._utils.lrp_rules import EpsilonRule

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.helpers.network_styles import IMAGE, STYLES, BasicBlock, Style
from tests.helpers.relevance import WEIGHTED, layerwise_relevance
from torch import Tensor, nn

from comparison import (
    SAME_RESULT,
    Benchmark,
    Comparison,
    NotMeasured,
    Options,
    Side,
    our_side,
    package_version,
    shortest,
)
from perdure import explain
from perdure.explain.checks.network import Inspection, inspect_network
from perdure.explain.checks.rewriting import suitable_network
from perdure.explain.explainer import get_explainer

PAGE = Path(__file__).parents[1] / "docs" / "results" / "explain-networks.md"
Errors: TypeAlias = tuple[float, float | str]
METHODS = ("deepshap", "lrp", "guided_backprop", "gradcam")
EXAMPLES, BACKGROUND, TARGET, EPSILON = 10, 50, 1, 1e-3


def ours(net: nn.Module, x: Tensor, method: str, background: Tensor) -> Tensor:
    """Return our maps of a network as it is written."""
    options = {"epsilon": EPSILON} if method == "lrp" else None
    return explain.attribute(suitable(net, x, method).model, x, TARGET, method, background=background, options=options)


def suitable(net: nn.Module, x: Tensor, method: str) -> Inspection:
    """Return the network that the method explains."""
    return suitable_network(method, get_explainer(method).requirement({}), inspect_network(net, x), x)


def theirs(net: nn.Module, x: Tensor, method: str, background: Tensor) -> Any:
    """Return captum's maps of a copy of the network, or the name of the error that it raises."""
    copied: Any = copy.deepcopy(net)
    for module in copied.modules():
        if isinstance(module, WEIGHTED) and method == "lrp":
            module.rule = EpsilonRule(EPSILON)
    try:
        if method == "deepshap":
            maps = DeepLiftShap(copied).attribute(x.clone(), background, target=TARGET)
        else:
            maps = {"lrp": LRP, "guided_backprop": GuidedBackprop}[method](copied).attribute(x.clone(), target=TARGET)
    except (RuntimeError, TypeError, AssertionError) as error:
        return type(error).__name__
    return maps.detach()


def relative(values: Tensor, expected: Tensor, scale: Tensor | None = None) -> float:
    """Return the largest difference relative to the largest expected value, or to that of ``scale``."""
    largest = (expected if scale is None else scale).detach().abs().max()
    return float((values.double() - expected.double()).detach().abs().max() / largest)


def accuracy(style: Style) -> dict[str, Errors]:
    """Return the errors of a style, ours and captum's, by measurement; the name of an error that captum raises stays."""
    written, modular = style.networks()
    x, background = style.inputs(EXAMPLES), style.inputs(BACKGROUND, seed=2)
    exact = copy.deepcopy(modular).double()
    difference = exact(x.double())[:, TARGET] - exact(background.double())[:, TARGET].mean()
    errors: dict[str, Errors] = {}
    for method in sorted(style.methods):
        maps = [ours(written, x, method, background), theirs(written, x, method, background)]
        if method == "deepshap":
            errors["completeness"] = _errors([_sums(m) for m in maps], difference)
        if method == "lrp":
            layers = layerwise_relevance(exact, x.double(), TARGET, EPSILON)
            score = exact(x.double())[:, TARGET]
            errors["conservation"] = _errors([_sums(m) for m in maps], score - layers.absorbed, score)
            errors[method] = _errors(maps, layers.values)
        else:
            errors[method] = _errors(maps, explain.attribute(modular, x, TARGET, method, background=background))
    return errors


def _sums(maps: Any) -> Any:
    return maps if isinstance(maps, str) else maps.double().flatten(1).sum(1)


def _errors(values: list[Any], expected: Tensor, scale: Tensor | None = None) -> Errors:
    """Return the largest differences relative to the largest expected value (or ``scale``); an error's name stays."""
    own, other = values
    return relative(own, expected, scale), other if isinstance(other, str) else relative(other, expected, scale)


def _cell(errors: Errors) -> str:
    """Return both errors as text."""
    return " / ".join(value if isinstance(value, str) else f"{value:.0e}" for value in errors)


def cost(net: nn.Module, x: Tensor, background: Tensor, method: str, repeats: int) -> tuple[float, float, bool]:
    """Return milliseconds to make a network suitable and to explain ten examples, and whether it is rewritten."""
    inspection = inspect_network(net, x)
    requirement = get_explainer(method).requirement({})
    rewriting, explaining = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        result = suitable_network(method, requirement, inspection, x)
        middle = time.perf_counter()
        explain.attribute(result.model, x, TARGET, method, background=background)
        rewriting.append(middle - start)
        explaining.append(time.perf_counter() - middle)
    return 1e3 * median(rewriting), 1e3 * median(explaining), result is not inspection


class ResNet18(nn.Module):
    """torchvision's ResNet-18 for 32 x 32 images: reused ReLUs in place, ``out += identity``."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        widths = [width * factor for factor in (1, 2, 4, 8)]
        blocks = [BasicBlock(width, width), BasicBlock(width, width)]
        for before, after in pairwise(widths):
            blocks += [BasicBlock(before, after, 2), BasicBlock(after, after)]
        self.blocks, self.fc = nn.Sequential(*blocks), nn.Linear(widths[-1], 10)

    def forward(self, x: Tensor) -> Any:
        """Return logits."""
        x = self.blocks(self.relu(self.bn1(self.conv1(x))))
        return self.fc(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))


def costs(repeats: int) -> dict[str, dict[str, tuple[float, float, bool]]]:
    """Return the cost of every method on small styles and on ResNet-18."""
    results: dict[str, dict[str, tuple[float, float, bool]]] = {}
    for name, style in STYLES.items():
        methods = [m for m in METHODS if m in style.methods or (m == "gradcam" and style.shape == IMAGE)]
        larger = replace(style, shape=(3, 32, 32)) if style.shape == IMAGE else style
        net, x, background = larger.networks()[0], larger.inputs(EXAMPLES), larger.inputs(BACKGROUND, seed=2)
        size = " x ".join(map(str, larger.shape))
        results[f"{name}, {size}"] = {method: cost(net, x, background, method, repeats) for method in methods}
    for width in (16, 64):
        torch.manual_seed(0)
        net, x, background = (
            ResNet18(width).eval(),
            torch.randn(EXAMPLES, 3, 32, 32),
            torch.randn(BACKGROUND, 3, 32, 32),
        )
        results[f"ResNet-18, width {width}, 32 x 32"] = {
            method: cost(net, x, background, method, repeats if method != "deepshap" else 3 if width < 64 else 1)
            for method in METHODS
        }
    return results


def page(
    errors: Mapping[str, Mapping[str, Errors]], times: dict[str, dict[str, tuple[float, float, bool]]], repeats: int
) -> str:
    """Return the page of results."""
    table = ["| network | as written | " + " | ".join(COLUMNS.values()) + " |", "|---|---|" + "---|" * len(COLUMNS)]
    for name, style in STYLES.items():
        cells = [_cell(errors[name][column]) if column in errors[name] else "refused" for column in COLUMNS]
        table.append(f"| {name} | {style.text} | {' | '.join(cells)} |")
    timing = ["| network | " + " | ".join(METHODS) + " |", "|---|" + "---|" * len(METHODS)]
    for name, row in times.items():
        timing.append(f"| {name} | " + " | ".join(_time(row.get(method)) for method in METHODS) + " |")
    worst = {c: max(e[c][0] for e in errors.values() if c in e) for c in COLUMNS}
    return TEMPLATE.format(
        versions=f"torch {torch.__version__}, captum {version('captum')}, Python {platform.python_version()}",
        table="\n".join(table),
        timing="\n".join(timing),
        completeness=f"{worst['completeness']:.0e}",
        conservation=f"{worst['conservation']:.0e}",
        map_error=f"{max(worst[method] for method in METHODS[:3]):.0e}",
        examples=EXAMPLES,
        background=BACKGROUND,
        epsilon=EPSILON,
        count=len(STYLES),
        repeats=repeats,
    )


def _time(row: tuple[float, float, bool] | None) -> str:
    if row is None:
        return ""
    rewriting, explaining, rewritten = row
    return f"{rewriting:.0f} / {explaining:.0f} ms = {rewriting / explaining:.1%}" if rewritten else "not needed"


COLUMNS = {
    "completeness": "DeepSHAP, completeness",
    "conservation": "LRP, conservation",
    "deepshap": "DeepSHAP, maps",
    "lrp": "LRP, maps",
    "guided_backprop": "guided backprop, maps",
}
TEMPLATE = """# Explanations of networks as people write them

`python benchmarks/explain_networks.py` explains {count} small networks in common styles with the rule-based methods and
compares the result with captum on the same networks, in one run ({versions}, one CPU
thread, cores shared with other jobs). DeepSHAP, and other methods where they need it, run on a copy that torch.fx
rewrites: activations, additions, pooling and reshapes that are called as functions become modules, a module that
is used k times becomes k modules, nothing works in place. The copy is used only if its outputs and
gradients on the user's data agree with those of the network to 1e-5, relative to the largest value.

Worst error of ours over all networks, in float32: completeness of DeepSHAP {completeness}, conservation of LRP
{conservation}; maps differ from those of a version written by hand with modules only by at most {map_error}, relative to the
largest value.

## Errors, ours / captum's

All errors are the largest over {examples} examples, relative to the largest expected value.

- Completeness: the sum of a map minus the difference of outputs, with {background} background examples.
- Conservation: the sum of relevances plus what biases and epsilon absorb, minus the output. The absorbed relevance, the sum
  over layers of R (b + eps sign z) / (z + eps sign z), is computed analytically layer by layer in float64, with
  epsilon = {epsilon}; the bias of batch norm is its shift. Captum runs with the same epsilon.
- Maps: DeepSHAP and guided backprop against our maps of the version in modules, LRP against the layer-by-layer formula.

The name of an error means that captum raises it; "refused", that the method has no rule for an activation of this network.

{table}

## Time to rewrite, relative to the time to explain ten examples

Median of {repeats} repeats with {background} background examples. "Not needed" means that the method is right on the network
as it is written. The time to explain includes all checks of the network.

{timing}

Only DeepSHAP needs modules for activations. LRP is computed as a modified gradient (Ancona et al. 2018, Proposition 1) and
guided backprop in the backward pass of every ReLU, so both are right whether an activation is a module or a function, reused
or in place. Grad-CAM keeps the map of the call that is explained. These three need a rewritten copy only for weights outside
layers (`F.linear`, `F.conv2d`, `@`), `torch.tanh` (LRP) and `clamp(min=0)` (LRP and guided backprop).

Rewriting takes a fraction of a millisecond per operation of the network, whatever the number of examples: a trace, and a
forward and backward pass of two examples to verify the copy. That is less than 5 % of DeepSHAP on images of CIFAR's size,
with the exception of networks that need less than about 0.2 s for ten examples. It is more than 5 % where explaining
ten examples takes only milliseconds: single-pass methods that need the copy, and networks on tables or short signals.
"""


RESOLUTION = float(torch.finfo(torch.float32).eps)
CORRECT = 1e-3
"""Largest relative error of a correct map."""
TITLES = {"deepshap": "DeepSHAP", "lrp": "LRP", "guided_backprop": "guided backprop"}
PEERS = {"deepshap": "`DeepLiftShap`", "lrp": "`LRP`", "guided_backprop": "`GuidedBackprop`"}
COMPARED = {
    "completeness": ("deepshap", "DeepSHAP on networks as written, completeness"),
    "conservation": ("lrp", "LRP on networks as written, conservation"),
    "guided_backprop": ("guided_backprop", "guided backprop on networks as written, maps"),
}
SMOKE_STYLES = ("functional", "in place")


def error_comparisons(errors: Mapping[str, Mapping[str, Errors]]) -> Iterator[Comparison]:
    """Compare the largest error over the networks that captum explains without raising an error."""
    for column, (method, task) in COMPARED.items():
        both = [row[column] for row in errors.values() if column in row]
        pairs = [(own, other) for own, other in both if not isinstance(other, str)]
        correct = sum(other <= CORRECT for _, other in pairs)
        own_correct = sum(own <= CORRECT for own, _ in both)
        sides = [max(RESOLUTION, *(pair[side] for pair in pairs)) for side in (0, 1)]
        yield Comparison(
            task,
            f"largest relative error of {len(pairs)} networks",
            our_side(f"`{method}`", sides[0]),
            Side(PEERS[method], package_version("captum"), sides[1]),
            note=f"correct (error at most {CORRECT:g}): ours {own_correct} of {len(both)} networks, captum {correct}; "
            f"captum raises an error on {len(both) - len(pairs)}",
        )


def time_comparisons(styles: Mapping[str, Style], repeats: int) -> Iterator[Comparison | NotMeasured]:
    """Compare the CPU seconds on networks of which captum's maps agree with ours, as written or else in modules."""
    for method, name in PEERS.items():
        seconds, used = [0.0, 0.0], []
        for title, style in styles.items():
            if method not in style.methods:
                continue
            larger = replace(style, shape=(3, 32, 32)) if style.shape == IMAGE else style
            x, background = larger.inputs(EXAMPLES), larger.inputs(BACKGROUND, seed=2)
            for form, net in zip(("as written", "in modules"), larger.networks(), strict=True):
                arguments = (net, x, method, background)
                maps = theirs(*arguments)
                if not isinstance(maps, str) and relative(maps, ours(*arguments)) <= CORRECT:
                    times = shortest(partial(ours, *arguments), partial(theirs, *arguments), repeats)
                    seconds = [total + part for total, part in zip(seconds, times, strict=True)]
                    used.append(f"{title} {form}")
                    break
        task = f"{TITLES[method]}, {EXAMPLES} examples, networks on which both agree"
        if not used:
            yield NotMeasured(task, f"captum, {name}", "there is none")
            continue
        yield Comparison(
            task,
            SAME_RESULT,
            our_side(f"`{method}`", seconds[0], seconds=seconds[0]),
            Side(name, package_version("captum"), seconds[1], seconds=seconds[1]),
            note=f"networks: {', '.join(used)}",
        )


def network_benchmark(options: Options) -> Iterator[Comparison | NotMeasured]:
    """Yield the comparisons with captum."""
    styles = {name: style for name, style in STYLES.items() if not options.smoke or name in SMOKE_STYLES}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from error_comparisons({name: accuracy(style) for name, style in styles.items()})
        yield from time_comparisons(styles, 1 if options.smoke else 5)


BENCHMARKS = (
    Benchmark(
        "rule-based-maps",
        "Rule-based explanations",
        f"""{len(STYLES)} small networks in common styles, {EXAMPLES} examples, {BACKGROUND} background examples,
epsilon {EPSILON} for LRP. Errors are relative to the largest expected value; smaller ones than the resolution of
float32 count as that. A network "as written" uses functions, reused modules and operations in place as people write
them. Times are the sum over networks on which both agree, as written or written in modules, images of 3 x 32 x 32;
ours include all checks of the network. All networks and definitions: [explanations of networks as people write
them](explain-networks.md).""",
        network_benchmark,
        packages=("captum",),
    ),
)


def main() -> None:
    """Measure, print and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    errors = {name: accuracy(style) for name, style in STYLES.items()}
    text = page(errors, costs(arguments.repeats), arguments.repeats)
    print(text)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
