"""JSON forms of results: NaN, infinity, one-based indices and arrays."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from perdure.audits.serialization import OneBased, OneBasedArray, from_json, to_json


@dataclass(frozen=True)
class Part:
    """A nested result."""

    step: OneBased
    value: float


@dataclass(frozen=True)
class Result:
    """A result with every kind of field that the results of audits have."""

    value: float
    pair: tuple[float, float]
    steps: tuple[OneBased, ...]
    table: dict[OneBased, NDArray[np.float64]]
    rows: dict[OneBased, OneBasedArray]
    flags: NDArray[np.bool_]
    counts: NDArray[np.int64]
    parts: tuple[Part, ...]
    by_share: dict[float, tuple[float, float]]
    settings: dict[str, Any]
    optional: NDArray[np.float64] | None = None
    missing: float | None = None
    reference: Part | None = None
    name: str = field(default="")


def example(value: float = math.nan) -> Result:
    return Result(
        value=value,
        pair=(math.inf, -math.inf),
        steps=(0, 4),
        table={0: np.array([[math.nan, 0.25], [math.inf, -1.0]])},
        rows={2: np.array([0, 7])},
        flags=np.array([True, False]),
        counts=np.array([[3, 0]]),
        parts=(Part(0, 0.5), Part(1, math.nan)),
        by_share={0.1: (0.5, math.nan)},
        settings={"samples": 40, "layer": None, "shares": [0.1, 0.3]},
        name="own",
    )


def through_a_file(result: Result) -> Any:
    """Return the JSON form after writing and reading strict JSON, which has neither NaN nor infinity."""
    return json.loads(json.dumps(to_json(result), allow_nan=False))


def test_nan_is_null_and_infinity_a_word():
    value = through_a_file(example())
    assert value["value"] is None
    assert value["pair"] == ["inf", "-inf"]
    assert value["table"] == {"1": [[None, 0.25], ["inf", -1.0]]}
    assert value["parts"][1]["value"] is None
    assert value["by_share"] == {"0.1": [0.5, None]}


def test_indices_are_one_based_in_files_and_other_integers_are_not():
    value = through_a_file(example())
    assert value["steps"] == [1, 5]
    assert value["rows"] == {"3": [1, 8]}
    assert [part["step"] for part in value["parts"]] == [1, 2]
    assert value["counts"] == [[3, 0]]
    assert value["settings"]["samples"] == 40


def test_reading_gives_the_values_and_types_back():
    result = from_json(through_a_file(example()), Result)
    assert math.isnan(result.value)
    assert result.pair == (math.inf, -math.inf)
    assert result.steps == (0, 4)
    np.testing.assert_array_equal(result.table[0], example().table[0])
    assert result.table[0].dtype == np.float64
    np.testing.assert_array_equal(result.rows[2], [0, 7])
    assert [array.dtype.name for array in (result.rows[2], result.flags, result.counts)] == ["int64", "bool", "int64"]
    assert result.parts[0] == Part(0, 0.5)
    assert math.isnan(result.by_share[0.1][1])
    assert result.settings == example().settings
    assert (result.optional, result.missing, result.reference, result.name) == (None, None, None, "own")


def test_optional_parts_are_read_if_they_are_there():
    value = {
        **through_a_file(example()),
        "optional": [None, 1.5],
        "missing": 2.0,
        "reference": {"step": 3, "value": "inf"},
    }
    result = from_json(value, Result)
    np.testing.assert_array_equal(np.asarray(result.optional), [math.nan, 1.5])
    assert result.missing == 2
    assert result.reference == Part(2, math.inf)


@given(st.floats(allow_nan=False))
def test_every_number_is_exactly_the_same_after_writing_and_reading(value):
    assert from_json(through_a_file(example(value)), Result).value == value


def test_a_malformed_value_is_an_error():
    value = through_a_file(example())
    with pytest.raises(KeyError, match="steps"):
        from_json({name: part for name, part in value.items() if name != "steps"}, Result)
    with pytest.raises(ValueError, match="abc"):
        from_json({**value, "value": "abc"}, Result)
    with pytest.raises((TypeError, ValueError)):
        from_json({**value, "parts": [3]}, Result)
