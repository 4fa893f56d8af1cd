"""A parser of printed Python values: dictionaries, lists, strings and numbers. Nothing is evaluated.

It reads what ``str(dictionary)`` writes. Numbers of numpy (``np.float64(97.5)``) become numbers. Any other call or object,
such as ``device(type='cuda', index=0)`` or ``<object at 0x7f>``, becomes `Opaque` text.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from perdure.base.errors import InputError
from perdure.base.files import DEEPEST_NESTING, LONGEST_TEXT, MOST_VALUES

_SPACE = re.compile(r"[ \t\r\n]*+")
_STRING = re.compile(r"""[bBuUrR]?(?:'((?:[^'\\\n]|\\.)*+)'|"((?:[^"\\\n]|\\.)*+)")""")
_NUMBER = re.compile(r"[-+]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|inf\b|nan\b)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*+")
_NUMPY_NUMBERS = re.compile(
    r"(?:np\.|numpy\.)?(?:float|int|uint)(?:16|32|64|8)?_?|(?:np\.|numpy\.)bool_?|(?:torch\.)?tensor"
)
_CONSTANTS = {"None": None, "True": True, "False": False, "nan": float("nan"), "inf": float("inf")}
_CLOSING = {"{": "}", "[": "]", "(": ")"}


_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_NAMED_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def _unescaped(match: re.Match[str]) -> str:
    digits = match[1] or match[2] or match[3]
    if not digits:
        return _NAMED_ESCAPES.get(match[4], match[4])
    code = int(digits, 16)
    is_character = code <= sys.maxunicode and not 0xD800 <= code < 0xE000
    return chr(code) if is_character else "\ufffd"


class Opaque(str):
    """The text of a value that is not a plain value."""

    __slots__ = ()


class _Parser:
    def __init__(self, where: str, text: str) -> None:
        self.where, self.text, self.position, self.values = where, text, 0, 0

    def error(self, expected: str) -> InputError:
        rest = self.text[self.position : self.position + 30]
        got = repr(rest) if rest else "the end of the line"
        return InputError(f"{self.where}, character {self.position + 1}: expected {expected}, got {got}.")

    def skip_space(self) -> None:
        match = _SPACE.match(self.text, self.position)
        self.position = match.end() if match else self.position

    def peek(self) -> str:
        self.skip_space()
        return self.text[self.position : self.position + 1]

    def take(self, mark: str) -> bool:
        if self.peek() == mark:
            self.position += 1
            return True
        return False

    def value(self, depth: int = 0) -> Any:
        self.values += 1
        if self.values > MOST_VALUES or depth > DEEPEST_NESTING:
            raise self.error(f"at most {MOST_VALUES} values and {DEEPEST_NESTING} levels")
        start = self.peek()
        if start == "{":
            return self.mapping(depth)
        if start in ("[", "("):
            return self.sequence(_CLOSING[start], depth)
        if start == "<":
            return self.angle()
        match = _STRING.match(self.text, self.position)
        if match:
            return self.string(match)
        match = _NUMBER.match(self.text, self.position)
        if match:
            self.position = match.end()
            return _to_number(match[0])
        match = _NAME.match(self.text, self.position)
        if match:
            return self.name(match, depth)
        raise self.error("a value")

    def string(self, match: re.Match[str]) -> str:
        self.position = match.end()
        content = match[1] if match[1] is not None else match[2]
        if len(content) > LONGEST_TEXT:
            raise self.error(f"strings of at most {LONGEST_TEXT} characters")
        return _ESCAPE.sub(_unescaped, content) if "\\" in content else content

    def sequence(self, closing: str, depth: int) -> list[Any]:
        self.position += 1
        items: list[Any] = []
        while not self.take(closing):
            items.append(self.value(depth + 1))
            if not self.take(",") and self.peek() != closing:
                raise self.error(f"a comma or {closing!r}")
        return items

    def mapping(self, depth: int) -> dict[Any, Any] | list[Any]:
        """Return a dictionary, or the items of a set."""
        self.position += 1
        entries: dict[Any, Any] = {}
        items: list[Any] = []
        while not self.take("}"):
            key = self.value(depth + 1)
            if self.take(":"):
                if isinstance(key, list | dict):
                    raise self.error("a name or a number as key")
                entries[key] = self.value(depth + 1)
            else:
                items.append(key)
            if not self.take(",") and self.peek() != "}":
                raise self.error("a comma or '}'")
        return items if items and not entries else entries

    def angle(self) -> Opaque:
        """Return the text of ``<...>``, up to the matching end."""
        start, level = self.position, 0
        for position in range(start, min(start + LONGEST_TEXT, len(self.text))):
            level += {"<": 1, ">": -1}.get(self.text[position], 0)
            if level == 0:
                self.position = position + 1
                return Opaque(self.text[start : self.position])
        raise self.error("the end of '<...>'")

    def name(self, match: re.Match[str], depth: int) -> Any:
        start, self.position = match.start(), match.end()
        if not self.take("("):
            return _CONSTANTS[match[0]] if match[0] in _CONSTANTS else Opaque(match[0])
        self.position -= 1
        arguments = self.arguments(depth)
        if _NUMPY_NUMBERS.fullmatch(match[0]) and arguments and isinstance(arguments[0], int | float):
            return arguments[0]
        return Opaque(self.text[start : self.position])

    def arguments(self, depth: int) -> list[Any]:
        """Return the values of the arguments of a printed call, which is not made."""
        self.position += 1
        items: list[Any] = []
        while not self.take(")"):
            self.skip_space()
            keyword = re.compile(r"[A-Za-z_]\w*=(?!=)").match(self.text, self.position)
            if keyword:
                self.position = keyword.end()
            items.append(self.value(depth + 1))
            if not self.take(",") and self.peek() != ")":
                raise self.error("a comma or ')'")
        return items


def _to_number(digits: str) -> int | float:
    if re.fullmatch(r"[-+]?\d{1,18}", digits):
        return int(digits)
    return float(digits)


def parse_python_value(where: str, text: str) -> Any:
    """Return the value of printed Python text; ``where`` names the file and line in errors."""
    parser = _Parser(where, text)
    value = parser.value()
    if parser.peek():
        raise parser.error("the end of the line")
    return value
