'''Explainers: one object per attribution method, registered by name.

A new explainer is one file in ``perdure/explain/methods/``. It is then a method of `attribute`, of the network checker, of
audits and of the command line. A complete file, ``perdure/explain/methods/smoothgrad.py``::

    """SmoothGrad: the mean gradient over noisy copies of the input."""

    from __future__ import annotations

    import torch
    from torch import Tensor

    from perdure.explain import Gradients, Request, explainer
    from perdure.explain.draws import generator


    @explainer("smoothgrad", needs=Gradients(), stochastic=True)
    def smoothgrad(request: Request, noise: float = 0.15) -> Tensor:
        """SmoothGrad (Smilkov et al. 2017): the mean gradient over ``samples`` noisy copies of the input.

        ``noise`` is the standard deviation of the noise, relative to the range of the example's values.
        """
        maps = []
        for index, example in enumerate(request.x):
            total = torch.zeros_like(example)
            for first in range(0, request.samples, request.batch_size):
                draws = range(first, min(first + request.batch_size, request.samples))
                copies = torch.stack([example + _noise(request, index, draw, noise) for draw in draws])
                total += _gradients(request, copies, int(request.target[index])).sum(dim=0)
            maps.append(total / request.samples)
            request.report(index + 1)
        return torch.stack(maps)


    def _noise(request: Request, index: int, draw: int, noise: float) -> Tensor:
        """Return Gaussian noise that depends only on the seed, the example and the index of the draw."""
        example = request.x[index]
        normal = generator(request.seed, request.keys[index], draw).standard_normal(tuple(example.shape))
        return torch.from_numpy(normal).to(example) * noise * (example.max() - example.min())


    def _gradients(request: Request, x: Tensor, target: int) -> Tensor:
        """Return the gradient of one output with respect to each input of a batch."""
        x.requires_grad_()
        (gradients,) = torch.autograd.grad(request.model(x.clone())[:, target].sum(), x)
        return gradients

``needs`` states what the method requires of a network (`Outputs`, `Gradients` or `ModuleRules`; or a function from the options
to one of them) and ``stochastic`` whether its maps depend on the seed. Both must be declared. Parameters after ``request`` are
the method's own options, with a type and a default value: ``attribute(..., "smoothgrad", options={"noise": 0.1})``.

Another package adds an explainer through the entry-point group ``perdure.explainers``. Each entry names a module to import::

    [project.entry-points."perdure.explainers"]
    smoothgrad = "my_package.smoothgrad"
'''

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

import numpy as np
import torch
from torch import Tensor, nn

from perdure.base.errors import InputError, error_suggestion
from perdure.base.registry import Registry
from perdure.explain.baselines import baseline_rows
from perdure.explain.shapley.players import Players

if TYPE_CHECKING:
    from perdure.explain.checks.network import Inspection, Requirement
    from perdure.explain.shapley.players import Players

Progress = Callable[[int, int], None]

Reduction = Literal["sum", "largest", "same", "players"]
"""How channels become one value per pixel: their sum, the largest magnitude, any channel (all are the same), or the sum over
the players at the pixel."""

OTHER_NAMES = {
    "saliency": "grad",
    "vanillagradient": "grad",
    "inputxgradient": "gradient_x_input",
    "guidedbackpropagation": "guided_backprop",
    "deepliftshap": "deepshap",
    "deepexplainer": "deepshap",
    "gradientshap": "expected_gradients",
    "gradientexplainer": "expected_gradients",
    "layergradcam": "gradcam",
    "shapleyvaluesampling": "shapley",
    "samplingexplainer": "shapley",
}
"""Names that captum and shap use for the same methods, in lower-case letters only."""


@dataclass(frozen=True)
class Explainer:
    """An attribution method: its function, what it requires of a network, and its own options."""

    name: str
    function: Callable[..., Tensor]
    needs: Requirement | Callable[[Mapping[str, Any]], Requirement]
    """The requirement, or a function from the options to it."""
    stochastic: bool
    """Whether two seeds give two different maps."""
    pixels: Reduction = "sum"

    @property
    def defaults(self) -> dict[str, Any]:
        """The method's own options with their default values."""
        parameters = list(inspect.signature(self.function).parameters.values())[1:]
        return {parameter.name: parameter.default for parameter in parameters}

    def parsed_options(self, options: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the options converted to their types; an unknown name or a wrong type raises `InputError`.

        Strings, as the command line passes them, are converted to bool, int and float.
        """
        types = get_type_hints(self.function)
        parsed = {}
        for name, value in (options or {}).items():
            if name not in self.defaults:
                known = error_suggestion(name, list(self.defaults)) if self.defaults else "it has none"
                raise InputError(f"method {self.name!r}: there is no option {name!r}; {known}")
            try:
                parsed[name] = _converted(value, types[name])
            except (ValueError, OverflowError):
                expected = types[name].__name__
                raise InputError(f"method {self.name!r}: option {name!r} must be a {expected}, got {value!r}") from None
        return parsed

    def requirement(self, options: Mapping[str, Any]) -> Requirement:
        """Return what the method requires of a network with these options."""
        needs: Any = self.needs
        requirement: Requirement = needs if hasattr(needs, "problems") else needs({**self.defaults, **options})
        return requirement


EXPLAINERS: Registry[Explainer] = Registry("method", group="perdure.explainers", package="perdure.explain.methods")


def explainer(
    name: str,
    *,
    needs: Requirement | Callable[[Mapping[str, Any]], Requirement],
    stochastic: bool,
    pixels: Reduction = "sum",
) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Register a function from a `Request` (and the method's own options) to maps of the shape of ``request.x``.

    Examples
    --------
    >>> import torch
    >>> from perdure import explain
    >>> @explain.explainer(
    ...     "signed_gradient", needs=explain.Gradients(), stochastic=False
    ... )
    ... def signed_gradient(request):
    ...     "The sign of the gradient."
    ...     x = request.x.clone().requires_grad_()
    ...     output = request.model(x).gather(1, request.target[:, None]).sum()
    ...     return torch.autograd.grad(output, x)[0].sign()
    >>> network, x = torch.nn.Linear(3, 2), torch.ones(1, 3)
    >>> explain.attribute(network, x, 0, "signed_gradient").abs().tolist()
    [[1.0, 1.0, 1.0]]
    """
    if isinstance(needs, type) or not (hasattr(needs, "problems") or callable(needs)):
        raise InputError(f"explainer {name!r}: needs must be a requirement such as Gradients(), got {needs!r}")
    if not isinstance(stochastic, bool):
        raise InputError(f"explainer {name!r}: stochastic must be True or False, got {stochastic!r}")

    def register(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        _check_signature(name, function)
        summary = (inspect.getdoc(function) or "").split("\n", 1)[0]
        EXPLAINERS.add(name, Explainer(name, function, needs, stochastic, pixels), summary)
        return function

    return register


def get_explainer(name: str) -> Explainer:
    """Return a registered explainer; an unknown name raises `InputError` with the closest known one.

    Examples
    --------
    >>> from perdure import explain
    >>> (
    ...     explain.get_explainer("lime").stochastic,
    ...     explain.get_explainer("lrp").stochastic,
    ... )
    (True, False)
    >>> explain.get_explainer("lrp").defaults
    {'epsilon': 1.0}
    """
    if name in EXPLAINERS:
        return EXPLAINERS.get(name)
    ours = OTHER_NAMES.get("".join(letter for letter in str(name).lower() if letter.isalpha()))
    if ours is not None:
        raise InputError(f"method: unknown name {name!r}; perdure calls it {ours!r}")
    raise InputError(f"method: unknown name {name!r}, {error_suggestion(str(name), EXPLAINERS.names())}")


def _check_signature(name: str, function: Callable[..., Tensor]) -> None:
    """Refuse an explainer whose options lack a default or a type."""
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        if parameter.default is parameter.empty or parameter.annotation is parameter.empty:
            raise InputError(f"explainer {name!r}: option {parameter.name!r} needs a type and a default value")


def _converted(value: Any, kind: Any) -> Any:
    """Return an option's value as ``kind``; a value that cannot be converted without loss raises `ValueError`."""
    if not isinstance(kind, type):  # a union or a Literal: the method checks the value
        return value
    if kind is bool and isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if kind in (int, float):
        is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if isinstance(value, str) or (is_number and kind(value) == value):
            return kind(value)
    elif isinstance(value, kind):
        return value
    raise ValueError(value)


@dataclass(frozen=True)
class Request:
    """One call of `attribute`. Tensors are detached, on the network's device and of its dtype.

    ``target`` holds one output index per example. ``samples`` is the number of random draws or steps for one map.
    ``baseline`` is as the user passed it: None, a word, a number or a tensor. ``batch_size`` is the number of rows that go
    through the network at once.
    """

    model: nn.Module
    x: Tensor
    target: Tensor
    background: Tensor | None
    samples: int
    seed: int
    layer: str | None
    baseline: Any
    batch_size: int
    inspection: Inspection
    players: Players | str | None = None
    progress: Progress | None = None
    keys: tuple[int, ...] = ()
    """A number for each example, on which its random draws depend; the same for every network."""
    fixed: Tensor | None = None
    """Variables that are never changed, with the shape of one example; None if all may be."""
    starts: Tensor | None = None
    """One row of masked values per example that takes the place of the background (tokens); None for a background."""
    fast_models: dict[str, nn.Module] = field(default_factory=dict, repr=False, compare=False)
    """Prepared copies of the network, which requests for other seeds share."""

    def required_background(self, method: str) -> Tensor:
        """Return the background; without one, raise `InputError`."""
        if self.background is None:
            raise InputError(
                f"method {method!r} needs a background: pass background=, training inputs with the shape of x"
            )
        return self.background

    def background_count(self, method: str) -> int:
        """Return the number of background rows of an example; without any, raise `InputError`."""
        return 1 if self.starts is not None else len(self.required_background(method))

    def background_rows(self, examples: Tensor, rows: Tensor) -> Tensor:
        """Return the background rows with these indices, each for the example with this index."""
        if self.starts is not None:
            return self.starts[examples]
        background = self.required_background("expected_gradients")[rows]
        return background if self.fixed is None else torch.where(self.fixed, self.x[examples], background)

    def baselines(self, default: str = "mean") -> Tensor:
        """Return the values of absent variables, one row per example; ``default`` is used if no baseline was given."""
        rows = baseline_rows(default if self.baseline is None else self.baseline, self.x, self.background)
        return rows if self.fixed is None else torch.where(self.fixed, self.x, rows)

    def report(self, done: int) -> None:
        """Report the number of finished examples to the progress callback, if there is one."""
        if self.progress is not None:
            self.progress(done, len(self.x))


def method_names() -> list[str]:
    """Return the names of all registered explainers.

    Examples
    --------
    >>> from perdure import explain
    >>> "expected_gradients" in explain.method_names()
    True
    """
    return EXPLAINERS.names()
