"""Words for messages."""

from __future__ import annotations


def reason(error: BaseException) -> str:
    """Return what an error says, on one line; its name where it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__
