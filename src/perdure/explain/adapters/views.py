"""Views: a model and its examples in the form in which explainers change them, and maps back in the form of the inputs."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from perdure.base.errors import InputError, error_suggestion
from perdure.explain.adapters.adapted import Adapted
from perdure.explain.adapters.inputs import InputForm, Series, Table, Tokens
from perdure.explain.adapters.models import Wrapper
from perdure.explain.shapley.players import Players


def comparable_shape(model: nn.Module, x: Tensor) -> tuple[int, ...]:
    """Return the shape of one example's map as maps are compared: (tokens,), (groups,), or that of the inputs."""
    view = input_view(model, x[:1], None, None)
    return tuple(view.x.shape[1:]) if view.players is None else (view.players.count,)


class LayoutWarning(UserWarning):
    """The layout of three-dimensional inputs was not stated."""


@dataclass(frozen=True)
class InputView:
    """Examples as an explainer sees them: values that can be masked, interpolated and differentiated.

    ``players``: the players of an example unless others are given. ``fixed``: variables that are never changed, with the
    shape of one example. ``starts``: the row of masked values of each example, which takes the place of the background.
    """

    model: nn.Module
    x: Tensor
    background: Tensor | None
    baseline: Any = None
    players: Players | None = None
    fixed: Tensor | None = None
    starts: Tensor | None = None
    to_inputs: Callable[[Tensor], Tensor] = lambda maps: maps
    """From maps of this view to maps with the shape of the inputs."""
    labels_of: Callable[[Tensor], Tensor] = lambda labels: labels
    """From labels with the shape of an example's inputs to labels of this view."""
    one_per_player: bool = False
    """Whether maps of inputs have one value per player (tokens)."""
    silent: Tensor | None = None
    """Players without attribution, (examples, players): tokens that are never masked."""

    def restored(self, maps: Tensor, reduction: str) -> Tensor:
        """Return maps with the shape of the inputs; variables that are held fixed have the value 0."""
        if self.one_per_player:
            return self.to_inputs(self.joined(maps, reduction))
        return self.to_inputs(maps if self.fixed is None else maps.masked_fill(self.fixed, 0.0))

    def comparable(self, maps: Tensor, reduction: str) -> Tensor:
        """Return maps as they are compared: channels first, one value per token or group of columns."""
        return maps if self.players is None else self.joined(maps, reduction)

    def joined(self, maps: Tensor, reduction: str) -> Tensor:
        """Return one value per player: the sum, the largest magnitude, or the value that all its variables share."""
        assert self.players is not None, "only views with players of their own join maps"  # noqa: S101
        flat, labels = maps.flatten(1), self.players.labels.flatten().to(maps.device)
        if self.fixed is not None:
            changed = ~self.fixed.flatten().to(maps.device)
            flat, labels = flat[:, changed], labels[changed]
        values = self._by_player(flat, labels, self.players.count, reduction)
        return values if self.silent is None else values.masked_fill(self.silent, 0.0)

    @staticmethod
    def _by_player(flat: Tensor, labels: Tensor, count: int, reduction: str) -> Tensor:
        values = flat.new_zeros(len(flat), count)
        if reduction == "largest":
            return values.scatter_reduce_(1, labels.expand_as(flat), flat.abs(), "amax")
        if reduction in ("same", "players"):
            return values.index_copy_(1, labels, flat)
        return values.index_add_(1, labels, flat)


def input_view(model: nn.Module, x: Tensor, background: Tensor | None, baseline: Any) -> InputView:
    """Return the view of a model's examples that its description asks for; the examples as they are without one."""
    plain = InputView(model, x, background, baseline)
    if not isinstance(model, Adapted):
        return plain
    if isinstance(model.inputs, Tokens):
        return _token_view(model, model.inputs, x, baseline)
    if model.form is not None:
        fixed = model.form.is_fixed().to(x.device)
        labels = torch.cumsum(~fixed, 0) - 1
        players = Players(labels.clamp(min=0).cpu(), int((~fixed).sum()), "features")
        if not players.count:
            raise InputError(
                f"x: none of the inputs {model.form.describe()} is a floating-point array, so none is explained"
            )
        return replace(plain, players=players, fixed=fixed if bool(fixed.any()) else None)
    if isinstance(model.inputs, Table):
        if x.dim() != 2:
            raise InputError(f"x: expected rows of a table, (n, columns), got shape {tuple(x.shape)}")
        labels = model.inputs.labels(x.shape[1])
        kind = "features" if int(labels.max()) + 1 == x.shape[1] else "groups"
        return replace(plain, players=Players(labels, int(labels.max()) + 1, kind))
    if isinstance(model.inputs, Series):
        return _series_view(model, model.inputs, x, background, baseline)
    return plain


class _ChannelsFirst(Wrapper):
    """A model of (n, time, channels) that takes (n, channels, time)."""

    def forward(self, x: Tensor) -> Any:
        """Return the scores of series with channels first."""
        return self.model(x.transpose(1, 2))


def _series_view(model: Adapted, series: Series, x: Tensor, background: Tensor | None, baseline: Any) -> InputView:
    if x.dim() != 3:
        raise InputError(f"x: expected time series of three dimensions, '{series.layout}', got shape {tuple(x.shape)}")
    if series.layout == "nct":
        return InputView(model, x, background, baseline)
    return InputView(
        _ChannelsFirst(model),
        x.transpose(1, 2).contiguous(),
        None if background is None else background.transpose(1, 2),
        baseline.transpose(-1, -2) if getattr(baseline, "ndim", 0) > 1 else baseline,
        to_inputs=lambda maps: maps.transpose(1, 2) if maps.dim() == 3 else maps,
        labels_of=lambda labels: labels.transpose(0, 1),
    )


class _GivenEmbedding(nn.Module):
    """Takes the place of an embedding layer and returns given vectors instead of those of the ids."""

    def __init__(self, table: nn.Embedding) -> None:
        super().__init__()
        self.weight, self.num_embeddings, self.embedding_dim = table.weight, table.num_embeddings, table.embedding_dim
        self.padding_idx, self.training = table.padding_idx, table.training
        self.vectors: Any = None

    def forward(self, _ids: Tensor) -> Any:
        """Return the vectors."""
        return self.vectors


class _Embedded(Wrapper):
    """A model of token ids that takes embeddings, followed by its own inputs, which are not changed, in one row.

    It holds a copy of the model that shares its weights and has `_GivenEmbedding` in place of the embedding layer.
    """

    def __init__(self, model: Adapted, embedding: str, length: int, width: int) -> None:
        shared: dict[int, Any] = {id(value): value for value in (*model.parameters(), *model.buffers())}
        copied = copy.deepcopy(model, shared)
        super().__init__(copied)
        table: Any = copied.model.get_submodule(embedding)
        self.given = _GivenEmbedding(table)
        copied.model.set_submodule(embedding, self.given)
        self.length, self.width = length, width

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of rows of embeddings and inputs."""
        size = self.length * self.width
        # Values that never change are no operations on the input for the network checker.
        with _disable_current_modes():
            fixed = x[:, size:].detach().clone()
        adapted: Any = self.model
        self.given.vectors = x[:, :size].reshape(x.shape[0], self.length, self.width)
        try:
            scores: Tensor = adapted.scores(adapted.arguments(fixed))
        finally:
            self.given.vectors = None
        return scores


def _token_view(model: Adapted, tokens: Tokens, x: Tensor, baseline: Any) -> InputView:
    """Return embeddings of the tokens, masked token by token; ids if the model has no embedding layer to go through."""
    first, length = _ids_slice(model.form, tokens, x)
    ids = x[:, first : first + length].long()
    mask = tokens.mask if baseline is None else baseline
    if not isinstance(mask, int) and mask != "mean":
        raise InputError(f"baseline: expected the id of a token or 'mean', as in Tokens(mask=...), got {baseline!r}")
    kept = torch.isin(ids, torch.tensor(list(tokens.keep), dtype=ids.dtype, device=ids.device))
    name = _embedding_name(model, tokens, x, ids)
    others = torch.arange(x.shape[1], device=x.device)
    is_id = (others >= first) & (others < first + length)
    if name is None:
        if mask == "mean":
            raise InputError(
                "Tokens: the model looks up no nn.Embedding with the token ids, so there is no mean embedding; "
                "pass the id of a mask or padding token"
            )
        masked = x.clone()
        masked[:, is_id] = torch.where(kept, ids, torch.full_like(ids, int(mask))).to(x)
        labels = torch.where(is_id, others - first, 0).cpu()
        return InputView(
            model,
            x,
            None,
            masked,
            Players(labels, length, "tokens"),
            None if bool(is_id.all()) else ~is_id,
            masked,
            to_inputs=lambda maps: _at_ids(maps, x.shape[1], first, length),
            labels_of=lambda given: torch.where(is_id.cpu(), given[(others - first).clamp(0, length - 1).cpu()], 0),
            one_per_player=True,
            silent=kept if bool(kept.any()) else None,
        )
    layer: Any = model.model.get_submodule(name)
    with torch.no_grad():
        vectors = layer(ids).to(x)
        absent = layer.weight.mean(dim=0) if mask == "mean" else layer(ids.new_tensor([_checked_id(mask, layer)]))[0]
    width = vectors.shape[-1]
    start = torch.where(kept[..., None], vectors, absent.to(x))
    # The embeddings come first, then the model's own inputs. These stay as they are for every point that is explained.
    rows, starts = (torch.cat([part.flatten(1), x], dim=1) for part in (vectors, start))
    size = length * width
    position = torch.arange(rows.shape[1])
    labels = torch.where(position < size, position // width, 0)
    return InputView(
        _Embedded(model, name, length, width),
        rows,
        None,
        starts,
        Players(labels, length, "tokens"),
        (position >= size).to(x.device),
        starts,
        to_inputs=lambda maps: _at_ids(maps, x.shape[1], first, length),
        labels_of=lambda given: torch.where(position < size, given[labels], 0),
        one_per_player=True,
        silent=kept if bool(kept.any()) else None,
    )


def _at_ids(maps: Tensor, columns: int, first: int, length: int) -> Tensor:
    """Return maps of tokens as columns of the packed inputs; inputs that are held fixed have the value 0."""
    rows = maps.new_zeros(len(maps), columns)
    rows[:, first : first + length] = maps
    return rows


def _checked_id(mask: Any, layer: Any) -> int:
    if not 0 <= int(mask) < layer.num_embeddings:
        raise InputError(f"Tokens: mask: expected an id from 0 to {layer.num_embeddings - 1}, got {mask}")
    return int(mask)


def _ids_slice(form: InputForm | None, tokens: Tokens, x: Tensor) -> tuple[int, int]:
    """Return the first column and the number of the token ids in packed rows."""
    if form is None:
        if x.dim() != 2:
            raise InputError(f"x: expected token ids of shape (n, length), got {tuple(x.shape)}")
        return 0, x.shape[1]
    index = form.index_of(tokens.ids)
    part = form.parts[index]
    if len(part.shape) != 1 or part.kind != "int":
        raise InputError(
            f"x: expected token ids, integers of shape (n, length), got {part.name} ({part.kind}, {part.shape})"
        )
    return sum(other.size for other in form.parts[:index]), part.size


def _embedding_name(model: Adapted, tokens: Tokens, x: Tensor, ids: Tensor) -> str | None:
    """Return the name of the embedding layer that looks up the token ids, found from one forward pass."""
    tables = {name: module for name, module in model.model.named_modules() if isinstance(module, nn.Embedding)}
    names: dict[nn.Module, str] = {module: name for name, module in tables.items()}
    if tokens.embedding is not None and tokens.embedding not in names.values():
        known = list(names.values())
        raise InputError(
            f"Tokens: embedding: no nn.Embedding named {tokens.embedding!r}"
            + (f", {error_suggestion(tokens.embedding, known)}" if known else " in the model")
        )
    calls: list[str] = []

    def record(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if inputs and isinstance(inputs[0], Tensor) and inputs[0].shape == ids[:1].shape:
            same = bool((inputs[0] == ids[:1]).all())
            if names[module] == tokens.embedding or (tokens.embedding is None and same):
                calls.append(names[module])

    handles = [module.register_forward_pre_hook(record) for module in names]
    try:
        with torch.no_grad():
            model(x[:1])
    finally:
        for handle in handles:
            handle.remove()
    found = list(dict.fromkeys(calls))
    if len(calls) > 1 and len(found) > 1:
        # An embedding of positions can be looked up with ids that happen to be 0, 1, 2, ...: the largest table has the tokens.
        found = [max(found, key=lambda name: tables[name].num_embeddings)]
    if found and calls.count(found[0]) > 1:
        raise InputError(
            f"Tokens: layer {found[0]!r} looks up the token ids {calls.count(found[0])} times in a forward pass; expected once"
        )
    return found[0] if found else None


def warn_about_layout(model: nn.Module, x: Tensor, purpose: str) -> None:
    """Warn that three-dimensional inputs are read as (n, channels, time) because nothing else was stated."""
    if x.dim() == 3 and not isinstance(model, Adapted):
        warnings.warn(
            f"{purpose} reads x of shape {tuple(x.shape)} as (n, channels, time). {LAYOUT_REMEDY}",
            LayoutWarning,
            stacklevel=4,
        )


LAYOUT_REMEDY = (
    "State the layout: perdure.adapt(model, perdure.explain.Series('nct')) for (n, channels, time), 'ntc' for "
    "(n, time, channels)."
)


def require_layout(model: nn.Module, shape: tuple[int, ...]) -> None:
    """Raise `InputError` if inputs of three dimensions have no stated layout; ``shape`` is that of a batch."""
    described = isinstance(model, Adapted) and (model.inputs is not None or model.form is not None)
    if len(shape) == 3 and not described:
        raise InputError(
            f"data: inputs of shape {tuple(shape[1:])} have no stated layout. {LAYOUT_REMEDY}",
            cli=f"--data: inputs of shape {tuple(shape[1:])} have no stated layout. Pass --layout nct for (n, channels, "
            "time), or --layout ntc for (n, time, channels)",
        )
