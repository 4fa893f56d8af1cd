"""The one kind of error a user can mend: bad input, told in one line."""


class InputError(ValueError):
    """Something given to perdure is not usable.

    The message is one line that names the place (file, cell, setting), what was found, what was expected and what to do.
    The command line prints it without a traceback and exits with 2.
    """


def nearest(word: str, known: list[str]) -> str:
    """Return ``, did you mean 'x'?`` for the closest known name, or the whole list when none is close."""
    from difflib import get_close_matches  # noqa: PLC0415  (only on the way to an error)

    close = get_close_matches(word, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known))}"
