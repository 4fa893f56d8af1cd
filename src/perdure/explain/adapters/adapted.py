"""`adapt`: any model as a network with one input tensor and one output tensor, the form in which explainers use it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Proxy

from perdure.base.errors import InputError
from perdure.explain.adapters.functions import FunctionModel
from perdure.explain.adapters.inputs import Description, InputForm, Series, Table, Tokens
from perdure.explain.adapters.models import Wrapper

Logits = Callable[[Any], Tensor]
OTHER_OUTPUTS = "pass perdure.adapt(model, logits=function), a function from the model's output to its scores"


class Adapted(Wrapper):
    """A model with a description of its inputs and outputs. Its weights have the names that they have in the model.

    ``form``: how several inputs are packed into the rows of one tensor; None for a model with a single input.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Description | None = None,
        logits: Logits | None = None,
        form: InputForm | None = None,
    ) -> None:
        super().__init__(model)
        self.inputs, self.logits, self.form = inputs, logits, form

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of packed rows."""
        return self.scores(self.arguments(x))

    def arguments(self, x: Tensor) -> list[Tensor]:
        """Return the model's inputs from packed rows."""
        if self.form is not None:
            return self.form.unpack(x)
        return [x.long() if isinstance(self.inputs, Tokens) else x]

    def scores(self, arguments: list[Tensor]) -> Tensor:
        """Call the model with its inputs and return the scores."""
        if self.form is not None and self.form.keywords:
            names = [part.name for part in self.form.parts]
            output = self.model(**dict(zip(names, arguments, strict=True)))
        else:
            output = self.model(*arguments)
        return scores_of(output, self.logits)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the state of the model itself."""
        return self.model.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load the state of the model itself."""
        return self.model.load_state_dict(*args, **kwargs)


def adapt(model: Any, inputs: Description | None = None, *, logits: Logits | None = None) -> Adapted:
    """Describe the inputs and outputs of a model, so that every function and command of perdure can use it.

    Parameters
    ----------
    model
        a torch.nn.Module; or an object with ``predict_proba`` or ``decision_function``, or a function from arrays to
        scores, which are explained with Shapley values and LIME
    inputs
        `Tokens`, `Series` or `Table`; nothing for images, plain tables and several inputs
    logits
        a function from the model's output to its scores, (n, outputs). Not needed for a tensor, a tuple that starts with
        the scores, or a dictionary or object with ``logits``

    Returns
    -------
    Adapted
        A module that takes the model's inputs as one tensor. Its weights have the names that they have in the model, so
        checkpoints of the model fit.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import perdure
    >>> from perdure import explain

    A recurrent network for series of (n, time, channels) whose output is a tuple of outputs and states:

    >>> recurrent = nn.LSTM(3, 4, batch_first=True)
    >>> last = lambda output: output[0][:, -1]  # of all outputs, the last one
    >>> network = perdure.adapt(recurrent, explain.Series("ntc"), logits=last)
    >>> maps = explain.attribute(
    ...     network, torch.randn(2, 10, 3), 0, "integrated_gradients"
    ... )
    >>> tuple(maps.shape)
    (2, 10, 3)

    Any model with ``predict_proba``, for example of scikit-learn:

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> x, y = load_iris(return_X_y=True)
    >>> tree = perdure.adapt(
    ...     DecisionTreeClassifier(max_depth=2, random_state=0).fit(x, y)
    ... )
    >>> maps = explain.attribute(tree, x[:50], 0, "shapley", background=x)
    >>> abs(maps).mean(axis=0).round(1).tolist()  # only the petal width decides
    [0.0, 0.0, 0.0, 1.0]
    """
    if inputs is not None and not isinstance(inputs, Tokens | Series | Table):
        raise InputError(f"inputs: expected Tokens(...), Series(...) or Table(...), got {inputs!r}")
    if logits is not None and not callable(logits):
        raise InputError(f"logits: expected a function from the model's output to its scores, got {logits!r}")
    if isinstance(model, Adapted):
        return Adapted(model.model, inputs or model.inputs, logits or model.logits, model.form)
    return Adapted(model if isinstance(model, nn.Module) else FunctionModel(model), inputs, logits)


def with_form(model: nn.Module, form: InputForm | None) -> nn.Module:
    """Return a model that takes packed rows of this form; the model itself for a single input."""
    if form is None:
        return model
    adapted = adapt(model)
    return Adapted(adapted.model, adapted.inputs, adapted.logits, form)


def packed_inputs(model: Any, x: Any, background: Any = None) -> tuple[nn.Module, Any, Any]:
    """Return a model as a network of one tensor, and its inputs and background as arrays: several inputs are packed."""
    network = model if isinstance(model, nn.Module) else adapt(model)
    if not isinstance(x, Mapping | tuple):
        return network, x, background
    form = getattr(network, "form", None) or InputForm.of(x)
    if form is None:
        return network, x, background
    is_packed = background is None or hasattr(background, "shape")
    return with_form(network, form), form.pack(x), background if is_packed else form.pack(background, "background")


def with_scores(model: nn.Module, x: Tensor) -> nn.Module:
    """Return a model whose output is a tensor (n, outputs): the model itself if it already is one, or adapted.

    ``x`` are rows on which the output's form is found out.
    """
    if isinstance(model, Adapted):
        return model
    with torch.no_grad():
        output = model(x.clone())
    return model if isinstance(output, Tensor) and output.dim() != 1 else Adapted(model)


def function_model(model: nn.Module) -> FunctionModel | None:
    """Return the model outside PyTorch that a network stands for, if there is one."""
    inner = model.model if isinstance(model, Adapted) else model
    return inner if isinstance(inner, FunctionModel) else None


def scores_of(output: Any, logits: Logits | None = None) -> Tensor:
    """Return the scores in a model's output: (n, outputs), or another tensor as it is.

    The output is a tensor, a tuple that starts with the scores (a loss before them is skipped), or a dictionary or object
    with ``logits``. One score per example becomes one column.
    """
    found: Any = output if logits is None else logits(output)
    if isinstance(found, Mapping) and "logits" in found:
        found = found["logits"]
    elif not _is_tensor(found) and _is_tensor(getattr(found, "logits", None)):
        found = found.logits
    elif isinstance(found, tuple | list):
        found = next((value for value in found if _is_tensor(value) and value.dim() > 0), found)
    if not _is_tensor(found):
        keys = f" with the keys {', '.join(map(str, found))}" if isinstance(found, Mapping) else ""
        raise InputError(
            f"network: expected one output tensor (batch, classes), got a {type(found).__name__}{keys}; {OTHER_OUTPUTS}"
        )
    scores: Tensor = found[:, None] if found.dim() == 1 else found
    return scores


def _is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor, or stands for one while a network is traced."""
    return isinstance(value, Tensor | Proxy)


def two_columns(output: Any, logits: Logits | None = None) -> Tensor:
    """Return the scores of both classes of a binary classifier with a single output: its negative, and itself."""
    score = scores_of(output, logits)
    return torch.cat([-score, score], dim=1)


def probability_columns(output: Any, logits: Logits | None = None) -> Tensor:
    """Return the probabilities of both classes of a binary classifier whose single output is that of the second class."""
    probability = scores_of(output, logits)
    return torch.cat([1 - probability, probability], dim=1)


@contextmanager
def replaced_output(layer: nn.Module, rows: Tensor) -> Iterator[None]:
    """Replace the output of a layer by ``rows`` within the block."""
    handle = layer.register_forward_hook(lambda *_: rows)
    try:
        yield
    finally:
        handle.remove()
