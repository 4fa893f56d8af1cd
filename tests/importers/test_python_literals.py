"""Printed Python values are parsed, never evaluated."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.base.errors import InputError
from perdure.importers.parsers.python_literals import Opaque, parse_python_value

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=8) | st.integers(-(10**17), 10**17), inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(max_examples=60)
@given(st.dictionaries(st.text(max_size=8), PLAIN, max_size=5))
def test_printed_dictionaries_are_read_back(value):
    assert parse_python_value("x", str(value)) == value


def test_numbers_of_numpy_and_objects():
    text = (
        "{'a': np.float64(97.5), 'b': numpy.int64(3), 'c': tensor(0.5), 'd': device(type='cuda', index=0), 'e': nan, "
        "'f': <function f at 0x7f>, 'g': Namespace(x=1, y=[2, 3]), 'h': (1, 2), 'i': {1, 2}, 'j': -inf, 'k': float32}"
    )
    value = parse_python_value("x", text)
    assert (value["a"], value["b"], value["c"]) == (97.5, 3, 0.5)
    assert value["d"] == "device(type='cuda', index=0)"
    assert isinstance(value["d"], Opaque)
    assert math.isnan(value["e"])
    assert value["f"] == "<function f at 0x7f>"
    assert value["g"] == "Namespace(x=1, y=[2, 3])"
    assert (value["h"], value["i"], value["j"]) == ([1, 2], [1, 2], -math.inf)
    assert isinstance(value["k"], Opaque)


def test_calls_are_text(tmp_path):
    marker = tmp_path / "marker"
    value = parse_python_value(
        "x", f"{{'a': __import__('os').system('touch {marker}')}}".replace(".system", " , 'b': system")
    )
    assert all(isinstance(item, Opaque) for item in value.values())
    with pytest.raises(InputError, match="character 23: expected a comma"):
        parse_python_value("x", "{'a': __import__('os').system('true')}")
    assert not marker.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{'a': 1", "expected a comma or '}', got the end of the line"),
        ("{'a': 1} x", "expected the end of the line, got 'x'"),
        ("{'a': }", "expected a value"),
        ("[" * 100, "64 levels"),
        ("{'a': 'b}", "expected a value"),
        ("{[1]: 2}", "expected a name or a number as key"),
        ("<never", "expected the end of '<...>'"),
        ("", "expected a value, got the end of the line"),
    ],
)
def test_errors_name_the_place(text, message):
    with pytest.raises(InputError, match=message.replace("(", r"\(").replace("[", r"\[")) as caught:
        parse_python_value("logs.pyd, line 3", text)
    assert str(caught.value).startswith("logs.pyd, line 3, character ")
