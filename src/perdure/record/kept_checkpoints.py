"""Which checkpoints a record keeps: all, the last one, or one after every K steps."""

from __future__ import annotations

import re

from perdure.base.errors import InputError

ALL, LAST = "all", "last"
_EVERY = re.compile(r"every-([1-9][0-9]{0,5})")


def check_kept_checkpoints(text: str) -> str:
    """Return ``all``, ``last`` or ``every-K``; another text raises `InputError`."""
    if not is_kept_checkpoints(text):
        raise InputError(
            f"keep_checkpoints: expected all, last or every-K, as in every-10, got {text!r}",
            cli=f"--keep-checkpoints {text}: expected all, last or every-K, as in every-10",
        )
    return ALL if text == "every-1" else text


def is_kept_checkpoints(text: object) -> bool:
    """Return whether a value is ``all``, ``last`` or ``every-K``."""
    return isinstance(text, str) and (text in (ALL, LAST) or _EVERY.fullmatch(text) is not None)


def kept_steps(keep: str, steps_done: int) -> list[int]:
    """Return the finished steps (0-based) whose checkpoints are kept; the last one always is."""
    if keep == ALL:
        return list(range(steps_done))
    match = _EVERY.fullmatch(keep)
    regular = [] if match is None else range(int(match[1]) - 1, steps_done, int(match[1]))
    return sorted({*regular, steps_done - 1} - {-1})


def describe_kept_checkpoints(keep: str) -> str:
    """Return why a record has no checkpoint after some steps; empty if it keeps all."""
    if keep == ALL:
        return ""
    what = "the last checkpoint" if keep == LAST else f"the last checkpoint and one after every {keep[6:]} steps"
    return f"the record keeps only {what} (--keep-checkpoints {keep})"
