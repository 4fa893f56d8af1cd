"""Deprecated names keep working, and the warning states the replacement and the version of removal."""

import subprocess
import sys

import pytest

from perdure.base.deprecation import PerdureDeprecationWarning, deprecated, warn_deprecated


@deprecated(removal="0.4", instead="total()")
def add(first: int, second: int = 1) -> int:
    """Return a sum."""
    return first + second


def test_a_deprecated_function_works_and_warns_at_the_place_of_the_call():
    message = r"^add\(\) is deprecated and will be removed in perdure 0\.4\. Use total\(\) instead\.$"
    with pytest.warns(PerdureDeprecationWarning, match=message) as caught:
        assert add(2, second=3) == 5
    assert [warning.filename for warning in caught] == [__file__]
    assert add.__doc__ == "Return a sum."
    assert add.__name__ == "add"


def test_an_option_warns_at_the_caller_of_the_function_that_has_it():
    def fit(budget: int | None = None) -> None:
        if budget is not None:
            warn_deprecated("the parameter budget", removal="0.5", instead="samples")

    with pytest.warns(PerdureDeprecationWarning, match="the parameter budget .* 0.5") as caught:
        fit(budget=3)
    assert [warning.filename for warning in caught] == [__file__]


def test_users_see_the_warning_without_changing_filters():
    code = "from perdure.base.deprecation import warn_deprecated as w\nw('x', removal='0.4', instead='y')"
    done = subprocess.run([sys.executable, "-c", f"exec({code!r})"], capture_output=True, text=True, check=True)
    assert "PerdureDeprecationWarning: x is deprecated" in done.stderr
