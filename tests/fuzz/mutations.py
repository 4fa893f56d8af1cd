"""Mutations of files: bytes, text and numbers are changed at random; equal seeds give equal files."""

import re
from collections.abc import Callable, Mapping, Sequence
from random import Random

Pack = Callable[[Mapping[str, bytes]], bytes]

_NUMBERS = (
    *("0", "-1", "1e999", "-1e308", "nan", "inf", "NaN", "-Infinity", "0.5", "1e-320", "2147483648", "99999999999"),
    *("9007199254740993", "18446744073709551616", "9" * 400, "7" * 5000, "1_000", "٣", "²", "0x10", "True", ""),
)
_TOKENS = (
    *(
        "null",
        "true",
        "{}",
        "[]",
        '""',
        "[[]]",
        '{"a": 1}',
        '"x"',
        "[" * 200,
        '"\\ud800"',
        '"\\u0000"',
        '"' + "y" * 2000 + '"',
    ),
    *(
        ",",
        ";",
        "\t",
        "\n",
        "\r",
        '"',
        "'",
        "\0",
        "\ufeff",
        "\x1b[2J",
        "[/bold]",
        "../../etc/passwd",
        "/dev/zero",
        "é",
        "😀",
    ),
    *("-", ":", "[", "]", "{", "}", "\\", "<!ENTITY a 'b'>", "&a;", "z" * 200_000),
)
_INTEGERS = (0, 1, 127, 255, 256, 65535, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1)


def mutate(rng: Random, seeds: Sequence[bytes], is_text: bool) -> bytes:
    """Return a seed after one to four mutations."""
    content = rng.choice(seeds)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        if is_text and rng.random() < 0.75:
            content = rng.choice(_TEXT_MUTATIONS)(rng, content.decode("utf-8", "replace")).encode("utf-8", "replace")
        else:
            content = rng.choice(_BYTE_MUTATIONS)(rng, content, rng.choice(seeds))
    return content


def mutate_members(rng: Random, seeds: Sequence[Mapping[str, bytes]], pack: Pack, is_text: bool) -> bytes:
    """Return an archive: its members, their names or the packed bytes are mutated."""
    members = dict(rng.choice(seeds))
    kind = rng.random()
    if kind < 0.6:
        name = rng.choice(list(members))
        members[name] = mutate(rng, [members[name]], is_text)
    elif kind < 0.7:
        name = rng.choice(list(members))
        members[mutate(rng, [name.encode()], is_text=True).decode("utf-8", "replace")[:500]] = members.pop(name)
    elif kind < 0.75 and len(members) > 1:
        members.pop(rng.choice(list(members)))
    if kind < 0.75:
        try:
            return pack(members)
        except (ValueError, OSError, OverflowError):  # a name or a size that the format cannot hold
            return mutate(rng, [pack(seeds[0])], is_text=False)
    return mutate(rng, [pack(seed) for seed in seeds], is_text=False)


def _span(rng: Random, length: int) -> tuple[int, int]:
    start = rng.randrange(length + 1)
    return start, min(length, start + rng.choice((1, 2, 4, 8, 16, 64, 256)))


def _flip_bit(rng: Random, content: bytes, _: bytes) -> bytes:
    changed = bytearray(content)
    for _unused in range(rng.choice((1, 1, 2, 8))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _truncate(rng: Random, content: bytes, _: bytes) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def _delete(rng: Random, content: bytes, _: bytes) -> bytes:
    start, end = _span(rng, len(content))
    return content[:start] + content[end:]


def _duplicate(rng: Random, content: bytes, _: bytes) -> bytes:
    start, end = _span(rng, len(content))
    return content[:end] + content[start:end] * rng.choice((1, 1, 2, 100)) + content[end:]


def _splice(rng: Random, content: bytes, other: bytes) -> bytes:
    return content[: rng.randrange(len(content) + 1)] + other[rng.randrange(len(other) + 1) :]


def _noise(rng: Random, content: bytes, _: bytes) -> bytes:
    start, end = _span(rng, len(content))
    return content[:start] + rng.randbytes(end - start) + content[end:]


def _integer(rng: Random, content: bytes, _: bytes) -> bytes:
    """Overwrite an integer, more often near the start, where headers are."""
    size = rng.choice((1, 2, 4, 8))
    value = rng.choice(_INTEGERS) % 2 ** (8 * size)
    start = rng.randrange(min(len(content), 64) + 1) if rng.random() < 0.5 else rng.randrange(len(content) + 1)
    number: bytes = value.to_bytes(size, rng.choice(("little", "big")))
    return content[:start] + number + content[start + size :]


def _digits(rng: Random, content: bytes, _: bytes) -> bytes:
    """Replace a number that is written as text inside a binary file."""
    matches = list(re.finditer(rb"[0-9]+", content[:4096]))
    if not matches:
        return content
    match = rng.choice(matches)
    number = rng.choice((b"0", b"9", b"-1", b"99999999", b"999999999999999999"))
    if rng.random() < 0.5:  # headers of a fixed length
        number = number[: match.end() - match.start()].rjust(match.end() - match.start(), b"0")
    return content[: match.start()] + number + content[match.end() :]


def _replace_number(rng: Random, text: str) -> str:
    matches = list(re.finditer(r"-?\d+(\.\d+)?", text))
    if not matches:
        return text
    match = rng.choice(matches)
    return text[: match.start()] + rng.choice(_NUMBERS) + text[match.end() :]


def _replace_token(rng: Random, text: str) -> str:
    matches = list(re.finditer(r'"[^"]*"|\w+|\[[^][]*\]|\{[^{}]*\}|[^\w\s]', text))
    if not matches:
        return text + rng.choice(_TOKENS)
    match = rng.choice(matches)
    other = rng.choice(matches).group() if rng.random() < 0.4 else rng.choice(_TOKENS)
    return text[: match.start()] + other + text[match.end() :]


def _insert_token(rng: Random, text: str) -> str:
    position = rng.randrange(len(text) + 1)
    return text[:position] + rng.choice(_TOKENS) + text[position:]


def _change_lines(rng: Random, text: str) -> str:
    lines = text.splitlines(keepends=True) or [""]
    first, second = rng.randrange(len(lines)), rng.randrange(len(lines))
    kind = rng.randrange(4)
    if kind == 0:
        lines[first], lines[second] = lines[second], lines[first]
    elif kind == 1:
        del lines[first]
    elif kind == 2:
        lines[first:first] = [lines[second]] * rng.choice((1, 2, 50))
    else:
        cells = lines[first].rstrip("\n").split(",")
        rng.shuffle(cells)
        lines[first] = ",".join(cells) + "\n"
    return "".join(lines)


def _nest(rng: Random, text: str) -> str:
    depth = rng.choice((1, 3, 70, 2000))
    opening, closing = rng.choice((("[", "]"), ('{"a":', "}")))
    return opening * depth + text + closing * depth


_BYTE_MUTATIONS = (_flip_bit, _truncate, _delete, _duplicate, _splice, _noise, _integer, _integer, _digits)
_TEXT_MUTATIONS = (
    _replace_number,
    _replace_number,
    _replace_token,
    _replace_token,
    _insert_token,
    _change_lines,
    _nest,
)
