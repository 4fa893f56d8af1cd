"""The error for invalid input, and helpers for messages."""

import unicodedata

STOP_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
"""Signals that stop a command like Ctrl-C does; Windows has no SIGHUP."""
INTERRUPTED = "interrupted. Finished work is saved; run the same command again to resume"


class InputError(ValueError):
    """Raised when an argument, a file or an option is invalid.

    The message is one line: it names the file, cell or option, what was given, what was expected and what to do. The
    command line prints it without a traceback and exits with status 2. ``cli`` is the message in the syntax of the command
    line, if it differs.

    Examples
    --------
    >>> import perdure
    >>> try:
    ...     perdure.metrics.average_accuracy([[0.9, 0.1], [60, 80]])
    ... except perdure.InputError as error:
    ...     print(str(error).partition(". ")[0])
    accuracy matrix, step 2, task 1: expected a number between 0 and 1, got 60
    """

    def __init__(self, message: str = "", *, cli: str | None = None) -> None:
        super().__init__(message)
        self.cli = cli


def error_suggestion(word: str, known: list[str]) -> str:
    """Return ``did you mean 'x'?`` with the closest known name, or ``known: a, b, c`` if no name is close."""
    from difflib import get_close_matches  # noqa: PLC0415  (needed only when an error is raised)

    matches = get_close_matches(word, known, n=1)
    return f"did you mean {matches[0]!r}?" if matches else f"known: {', '.join(sorted(known))}"


def error_message(error: BaseException, longest: int = 200) -> str:
    """Return an exception's message on one line, cut to ``longest`` characters; the name of its class if it is empty."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def escape_control_characters(text: str) -> str:
    """Return text with control, format and unpaired surrogate characters and line separators escaped as in a Python string."""
    return "".join(
        character.encode("unicode_escape").decode()
        if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
        else character
        for character in text
    )
