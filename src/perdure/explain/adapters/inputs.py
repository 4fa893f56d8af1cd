"""What a model's inputs are: several arrays, token ids, time series, or a table with groups of columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from perdure.base.errors import InputError, error_suggestion

LARGEST_INTEGER = 2**24
"""float32 represents all integers up to this one; inputs of a model are stored as float32."""
LAYOUTS = ("nct", "ntc")
_KINDS = {"f": "float", "i": "int", "u": "int", "b": "bool"}
_TORCH_TYPES = {"int": torch.int64, "bool": torch.bool}


@dataclass(frozen=True)
class Tokens:
    """Token ids, (n, length). Tokens are the players; gradient methods go through the embedding.

    ``mask``: the id of the token that replaces an absent token (a mask or padding token), or ``"mean"`` for the mean
    embedding of the vocabulary. ``ids``: the name or position of the ids among several inputs. ``keep``: ids that are
    never masked, such as those of [CLS] and [SEP]. ``embedding``: the name of the embedding layer, found from a forward
    pass by default. ``vocabulary``: the text of each id, a sequence or a mapping, for figures and reports.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from perdure import explain
    >>> words = ["[mask]", "good", "bad", "film"]
    >>> class Sentiment(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         weights = torch.tensor([[0.0], [1.0], [-1.0], [0.0]])
    ...         self.embedding = nn.Embedding.from_pretrained(weights)
    ...     def forward(self, ids):
    ...         return self.embedding(ids).sum(dim=1)
    >>> model = explain.adapt(Sentiment(), explain.Tokens(mask=0, vocabulary=words))
    >>> # "film good", "film bad"
    >>> explain.attribute(model, torch.tensor([[3, 1], [3, 2]]), 0, "shapley").tolist()
    [[0.0, 1.0], [0.0, -1.0]]
    """

    mask: int | Literal["mean"]
    ids: str | int | None = None
    keep: Sequence[int] = ()
    embedding: str | None = None
    vocabulary: Sequence[str] | Mapping[int, str] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if self.mask != "mean" and (isinstance(self.mask, bool) or not isinstance(self.mask, int | np.integer)):
            raise InputError(f"Tokens: mask must be the id of a token or 'mean', got {self.mask!r}")

    def text(self, token: int) -> str:
        """Return the text of a token; its number if the vocabulary does not list it."""
        if isinstance(self.vocabulary, Mapping):
            return str(self.vocabulary.get(token, token))
        return str(self.vocabulary[token]) if 0 <= token < len(self.vocabulary) else str(token)


@dataclass(frozen=True)
class Series:
    """Time series. ``layout``: ``"nct"`` for (n, channels, time) or ``"ntc"`` for (n, time, channels).

    Time steps are the players. ``channels``: the names of the channels, for figures and reports.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from perdure import explain
    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    >>> model = explain.adapt(network, explain.Series("ntc", channels=["x", "y"]))
    >>> x = torch.ones(1, 6, 2)
    >>> maps = explain.attribute(model, x, 0, "shapley", baseline="zero", samples=20)
    >>> tuple(maps.shape)
    (1, 6, 2)
    >>> maps[0, :, 0].equal(maps[0, :, 1])
    True
    """

    layout: Literal["nct", "ntc"]
    channels: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise InputError(
                f"Series: unknown layout {self.layout!r}; expected 'nct' for (n, channels, time) or 'ntc' for (n, time, "
                "channels)"
            )


@dataclass(frozen=True)
class Table:
    """Rows of a table, (n, columns). ``groups``: columns (0-based) that belong to one feature, by its name.

    The groups are the players; a column outside the groups is a player of its own. ``names``: the names of the columns, for
    figures and reports.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from perdure import explain
    >>> network = nn.Linear(4, 2, bias=False)
    >>> network.weight.data = torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    >>> names = ["width", "height", "red", "blue"]
    >>> model = explain.adapt(
    ...     network, explain.Table(groups={"color": [2, 3]}, names=names)
    ... )
    >>> explain.attribute(
    ...     model, torch.ones(1, 4), 1, "shapley", baseline="zero"
    ... ).tolist()
    [[0.0, 0.0, 2.0, 2.0]]
    """

    groups: Mapping[str, Sequence[int]] = field(default_factory=dict)
    names: Sequence[str] = ()

    @classmethod
    def from_names(cls, names: Sequence[str]) -> Table:
        """Return the table of one-hot encoded columns named ``feature=value``: the columns of a feature form a group."""
        groups: dict[str, list[int]] = {}
        for column, name in enumerate(names):
            feature, equals, _ = name.partition("=")
            if equals:
                groups.setdefault(feature, []).append(column)
        return cls(groups, tuple(names))

    def labels(self, columns: int) -> Tensor:
        """Return the player of each column, numbered in the order of the first columns."""
        owner: dict[int, str] = {}
        for name, members in self.groups.items():
            for column in members:
                if not 0 <= column < columns:
                    raise InputError(f"Table: group {name!r}: expected columns from 0 to {columns - 1}, got {column}")
                if column in owner:
                    raise InputError(f"Table: column {column} is in two groups, {owner[column]!r} and {name!r}")
                owner[column] = name
        numbers: dict[tuple[str, object], int] = {}
        keys = [("group", owner[column]) if column in owner else ("column", column) for column in range(columns)]
        return torch.tensor([numbers.setdefault(key, len(numbers)) for key in keys])

    def features(self, columns: int) -> tuple[str, ...]:
        """Return the name of each player, in the order of `labels`."""
        owner = {column: name for name, members in self.groups.items() for column in members}
        names = [*self.names, *(f"column {column + 1}" for column in range(len(self.names), columns))]
        return tuple(dict.fromkeys(owner.get(column, names[column]) for column in range(columns)))


Description = Tokens | Series | Table


@dataclass(frozen=True)
class Part:
    """One of several inputs: its name, the shape of one example, and float, int or bool."""

    name: str
    shape: tuple[int, ...]
    kind: str

    @property
    def size(self) -> int:
        """Number of values of one example."""
        return prod(self.shape)


@dataclass(frozen=True)
class InputForm:
    """How the several inputs of a model are packed into one array, (n, values), and unpacked again.

    ``keywords``: whether the inputs are keyword arguments (a dictionary) or positional arguments (a tuple).
    """

    parts: tuple[Part, ...]
    keywords: bool

    @classmethod
    def of(cls, inputs: Any, name: str = "x") -> InputForm | None:
        """Return the form of a dictionary or a tuple of arrays; None for anything else."""
        if not (isinstance(inputs, Mapping) or (isinstance(inputs, tuple) and all(map(_is_array, inputs)))):
            return None
        named = inputs.items() if isinstance(inputs, Mapping) else enumerate(inputs)
        arrays = {str(key): input_array(value, f"{name}[{key!r}]") for key, value in named}
        if not arrays:
            raise InputError(f"{name}: expected at least one input, got an empty {type(inputs).__name__}")
        lengths = {key: len(array) for key, array in arrays.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{key}: {length}" for key, length in lengths.items())
            raise InputError(f"{name}: expected the same number of examples in every input, got {listed}")
        parts = tuple(Part(key, array.shape[1:], _KINDS[array.dtype.kind]) for key, array in arrays.items())
        return cls(parts, isinstance(inputs, Mapping))

    def pack(self, inputs: Any, name: str = "x") -> NDArray[Any]:
        """Return several inputs as one array (n, values); inputs of another form raise `InputError`."""
        form = InputForm.of(inputs, name)
        if form is None or form.signature != self.signature:
            given = "one array" if form is None else form.describe()
            raise InputError(f"{name}: expected the inputs {self.describe()}, got {given}")
        values = inputs.values() if isinstance(inputs, Mapping) else inputs
        by_name = dict(zip((part.name for part in form.parts), values, strict=True))
        arrays = [input_array(by_name[part.name], f"{name}[{part.name!r}]") for part in self.parts]
        wide = any(array.dtype == np.float64 for array in arrays)
        return np.concatenate(
            [array.reshape(len(array), -1).astype(np.float64 if wide else np.float32) for array in arrays], axis=1
        )

    def unpack(self, x: Tensor) -> list[Tensor]:
        """Return the inputs, each with its shape and type, from packed rows."""
        pieces = torch.split(x, [part.size for part in self.parts], dim=1)
        return [
            piece.reshape(x.shape[0], *part.shape).to(_TORCH_TYPES.get(part.kind, x.dtype))
            for part, piece in zip(self.parts, pieces, strict=True)
        ]

    def split(self, maps: Any) -> Any:
        """Return packed maps in the form of the inputs: a dictionary or a tuple."""
        bounds = np.cumsum([0, *(part.size for part in self.parts)])
        pieces = {
            part.name: maps[:, bounds[index] : bounds[index + 1]].reshape(len(maps), *part.shape)
            for index, part in enumerate(self.parts)
        }
        return pieces if self.keywords else tuple(pieces.values())

    def is_fixed(self) -> Tensor:
        """Return for each packed value whether it is held fixed: integers and booleans have no values in between."""
        return torch.cat([torch.full((part.size,), part.kind != "float") for part in self.parts])

    def index_of(self, part: str | int | None) -> int:
        """Return the position of the token ids: the named part, or the only integer part, or ``input_ids``."""
        names = [part.name for part in self.parts]
        if part is not None:
            if str(part) not in names:
                raise InputError(f"Tokens: no input {part!r}, {error_suggestion(str(part), names)}; pass ids=")
            return names.index(str(part))
        integers = [index for index, part in enumerate(self.parts) if part.kind == "int"]
        if "input_ids" in names:
            return names.index("input_ids")
        if len(integers) != 1:
            raise InputError(f"Tokens: which of the inputs {', '.join(names)} holds the token ids? Pass ids=")
        return integers[0]

    @property
    def signature(self) -> tuple[bool, frozenset[Part] | tuple[Part, ...]]:
        """What two forms have in common if one can be packed as the other: the order of keywords does not matter."""
        return self.keywords, frozenset(self.parts) if self.keywords else self.parts

    def describe(self) -> str:
        """Return names, types and shapes of the inputs."""
        return ", ".join(f"{part.name} ({part.kind}, {part.shape})" for part in self.parts)


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def input_array(values: Any, name: str) -> NDArray[Any]:
    """Return one input as an array of numbers with a batch dimension; integers must be exact in float32."""
    if isinstance(values, Tensor):
        detached = values.detach().cpu()
        values = (detached.float() if detached.dtype in (torch.float16, torch.bfloat16) else detached).numpy()
    array = np.asarray(values)
    if array.dtype.kind not in _KINDS or array.ndim < 1:
        raise InputError(
            f"{name}: expected numbers with a batch dimension first, got type {array.dtype}, shape {array.shape}"
        )
    if array.dtype.kind in "iu" and array.size and int(np.abs(array).max()) > LARGEST_INTEGER:
        raise InputError(f"{name}: expected integers up to {LARGEST_INTEGER}, got {int(np.abs(array).max())}")
    return array
