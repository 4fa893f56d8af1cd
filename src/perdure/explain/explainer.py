"""Explainers: one object per attribution method, registered by name.

A new explainer is one file::

    from torch import Tensor

    from perdure.explain import Gradients, Request, explainer
    from perdure.explain.draws import example_key, generator


    @explainer("smoothgrad", needs=Gradients(), stochastic=True)
    def smoothgrad(request: Request, noise: float = 0.15) -> Tensor:
        \"\"\"SmoothGrad (Smilkov et al. 2017): the mean gradient over noisy copies of the input.\"\"\"
        ...

``needs`` states what the method requires of a network and ``stochastic`` whether its maps are random; both must be declared.
Parameters after ``request`` are the method's own options, for example ``attribute(..., options={"noise": 0.1})``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

from torch import Tensor

from perdure.base.errors import InputError, suggest
from perdure.base.registry import Registry

if TYPE_CHECKING:
    from perdure.explain.checks.requirements import Requirement

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
        """Return the options converted to their types; an unknown name or a wrong type raises `InputError`."""
        types = get_type_hints(self.function)
        parsed = {}
        for name, value in (options or {}).items():
            if name not in self.defaults:
                known = suggest(name, list(self.defaults)) if self.defaults else "it has none"
                raise InputError(f"method {self.name!r}: there is no option {name!r}; {known}")
            parsed[name] = self._converted(name, value, types[name])
        return parsed

    def _converted(self, name: str, value: Any, kind: Any) -> Any:
        if not isinstance(kind, type) or isinstance(value, kind):
            return value
        try:
            return kind(value)
        except (TypeError, ValueError):
            raise InputError(
                f"method {self.name!r}: option {name!r} must be a {kind.__name__}, got {value!r}"
            ) from None

    def requirement(self, options: Mapping[str, Any]) -> Requirement:
        """Return what the method requires of a network with these options."""
        needs: Any = self.needs
        requirement: Requirement = needs({**self.defaults, **options}) if inspect.isfunction(needs) else needs
        return requirement


EXPLAINERS: Registry[Explainer] = Registry("method", group="perdure.explainers", package="perdure.explain.methods")


def explainer(
    name: str,
    *,
    needs: Requirement | Callable[[Mapping[str, Any]], Requirement],
    stochastic: bool,
    pixels: Reduction = "sum",
) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Register a function from a `Request` (and the method's own options) to maps of the shape of ``request.x``."""

    def register(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        _check_signature(name, function)
        summary = (inspect.getdoc(function) or "").split("\n", 1)[0]
        EXPLAINERS.add(name, Explainer(name, function, needs, stochastic, pixels), summary)
        return function

    return register


def get_explainer(name: str) -> Explainer:
    """Return a registered explainer; an unknown name raises `InputError` with the closest known one."""
    if name in EXPLAINERS:
        return EXPLAINERS.get(name)
    ours = OTHER_NAMES.get("".join(letter for letter in str(name).lower() if letter.isalpha()))
    if ours is not None:
        raise InputError(f"method: unknown name {name!r}; perdure calls it {ours!r}")
    raise InputError(f"method: unknown name {name!r}, {suggest(str(name), EXPLAINERS.names())}")


def _check_signature(name: str, function: Callable[..., Tensor]) -> None:
    """Refuse an explainer whose options lack a default or a type."""
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        if parameter.default is parameter.empty or parameter.annotation is parameter.empty:
            raise InputError(f"explainer {name!r}: option {parameter.name!r} needs a type and a default value")
