"""Policy files: TOML, with messages that name the line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perdure.base.errors import InputError, error_message
from perdure.base.files import read_text
from perdure.policies.policy import Places, Policy, make_policy

LARGEST_POLICY = 2**20
"""Bytes of a policy file."""
LONGEST_LINE = 10_000
"""Characters of a line; a key of many parts would take long to read."""
_RULE = re.compile(r"^[ \t]*\[\[[ \t]*rule[ \t]*\]\]", re.MULTILINE)
_AT_LINE = re.compile(r"\(at line (\d+), column \d+\)")


PolicySource = str | Path | Policy | Mapping[str, Any]
"""A policy file, a policy, or a mapping with the keys of a policy file."""


def as_policy(policy: PolicySource) -> Policy:
    """Return the policy that a file or a mapping describes."""
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, str | Path):
        return read_policy(policy)
    if isinstance(policy, Mapping):
        return make_policy(policy)
    raise InputError(f"policy: expected a file, a Policy or a mapping, got {type(policy).__name__}")


def read_policy(path: str | Path) -> Policy:
    r"""Return the policy in a TOML file. A mistake raises `InputError` with the line, what was given and a suggestion.

    Examples
    --------
    >>> from pathlib import Path
    >>> from perdure import policies
    >>> rule = 'metric = "average_accuracy"', "threshold = 0.9"
    >>> _ = Path("policy.toml").write_text("\n".join(["[[rule]]", *rule]))
    >>> policies.read_policy("policy.toml").rules[0].threshold
    0.9
    """
    file = Path(path)
    text = read_text(file, LARGEST_POLICY)
    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) > LONGEST_LINE:
            raise InputError(f"{file}, line {number}: expected at most {LONGEST_LINE} characters, got {len(line)}.")
    try:
        value = tomllib.loads(text)
    except RecursionError:
        raise InputError(f"{file}: lists and tables are nested too deeply.") from None
    except (ValueError, OverflowError) as error:
        raise InputError(_syntax_error(file, text, error)) from None
    return make_policy(value, _FilePlaces(str(file), text))


def _syntax_error(file: Path, text: str, error: Exception) -> str:
    """Return the message for a file that is not TOML; the reader of TOML states the line in its own message."""
    message = error_message(error, 120)
    found = _AT_LINE.search(message)
    line = int(found.group(1)) if found else text.count("\n") + 1
    return f"{file}, line {line}: not TOML: {_AT_LINE.sub('', message).replace('(at end of document)', '').strip()}."


class _FilePlaces(Places):
    """The lines of keys, found by searching the text; the nearest one if a key is written in an unusual way."""

    def __init__(self, source: str, text: str) -> None:
        super().__init__(source)
        self.text = text
        self.starts = [match.start() for match in _RULE.finditer(text)]

    def line(self, rule: int | None, key: str | None) -> int:
        """Return the line of a key, or of the beginning of a rule."""
        begin, end = self._block(rule)
        position = begin if key is None else self._position(key, begin, end)
        return self.text.count("\n", 0, position) + 1

    def _block(self, rule: int | None) -> tuple[int, int]:
        """Return where a rule begins and ends; before the first rule for the policy itself."""
        ends = [*self.starts[1:], len(self.text)]
        if rule is None:
            return 0, self.starts[0] if self.starts else len(self.text)
        return (self.starts[rule], ends[rule]) if rule < len(self.starts) else (0, len(self.text))

    def _position(self, key: str, begin: int, end: int) -> int:
        word = re.escape(key)
        on_a_line = re.compile(rf"^[ \t]*(?:\[\[?[ \t]*)?[\"']?{word}[\"']?[ \t]*[=.\]]", re.MULTILINE)
        inside = re.compile(rf"[\"']?{word}[\"']?[ \t]*=")
        for pattern in (on_a_line, inside):
            match = pattern.search(self.text, begin, end) or pattern.search(self.text)
            if match:
                return match.end() - 1
        return begin
