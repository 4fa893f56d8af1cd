"""Fingerprints of audits, which tell whether two audits have the same results, and what differs between two audits."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.audits import serialization
from perdure.base.errors import InputError

if TYPE_CHECKING:
    from perdure.audits.results import Audit

DIGITS = 9
"""Significant digits of numbers; sums in another order differ in the last bits."""
MOST_SHOWN = 10
"""Differing values that `describe_differences` lists."""
_NOT_RESULTS = ("run", "runs", "folder")
"""Fields that hold paths."""
_TRUST_PARTS = ("bias", "retraining", "checkpoints")
_SHA256 = re.compile(r"[0-9a-f]{64}")
Plain = dict[str, Any]


def audit_fingerprints(audit: Audit) -> dict[str, str]:
    """Return the SHA-256 of each part of an audit: data, metrics, clamp, shapc and trust; parts without results are left out.

    Paths, hardware, versions, options and the order of runs do not count; numbers count with nine significant digits.
    """
    return {name: _sha256(part) for name, part in comparable_parts(audit).items() if part}


def audit_fingerprint(audit: Audit) -> str:
    """Return one SHA-256 of all parts of an audit."""
    return _sha256(audit_fingerprints(audit))


def comparable_parts(audit: Audit) -> dict[str, Any]:
    """Return the parts of an audit as plain values, without anything that does not belong to the results."""
    plain = serialization.to_json(audit)
    metrics = {
        name: plain[name]
        for name in ("first_places", "first_place_criteria", "correlation", "partial_scores", "weights", "settings")
    }
    parts = {
        "data": _sorted([_data(run, audit.sources) for run in plain["provenance"]]),
        "metrics": {
            **metrics,
            "learners": _sorted([_learner(entry) for entry in plain["learners"]]),
            "accuracy_differences": _sorted(plain["accuracy_differences"]),
            "lifelong": _sorted(plain["lifelong"]),
        },
        "clamp": plain["clamp"],
        "shapc": [_sorted(plain["shapc"]), _sorted(plain["differences"])] if plain["shapc"] else [],
        "trust": _sorted([_trust(findings) for findings in plain["trust"]]),
    }
    return {name: _rounded(_without_paths(part)) for name, part in parts.items()}


def _data(run: Plain, sources: Mapping[str, str]) -> Plain:
    """Return what identifies the data of a run; for a record that no command can write again, the digest of its files."""
    known = {name: run["data"][name] for name in ("data_sha256", "fingerprint") if name in run["data"]}
    if "imported" in run["data"]:
        known["imported"] = run["data"]["imported"].get("sha256")
    digest = sources.get(run["run"]) if run["command"] is None else None
    return {"learner": run["learner"], "benchmark": run["benchmark"], "seed": run["seed"], **known, "files": digest}


def _learner(entry: Plain) -> Plain:
    """Return a learner with the values of its runs as a sorted list."""
    values = {**entry["run_values"], **entry["variant_values"]}
    seeds = entry["seeds"] or [None] * len(entry["runs"])
    runs = [
        {"seed": seed, **{name: numbers[index] for name, numbers in values.items()}} for index, seed in enumerate(seeds)
    ]
    kept = {name: part for name, part in entry.items() if name not in ("run_values", "variant_values", "seeds")}
    return {**kept, "run_values": _sorted(_rounded(runs))}


def _trust(findings: Plain) -> Plain:
    """Return findings without the options with which they were measured and without digests of checkpoints."""
    parts = {name: None if findings[name] is None else dict(findings[name]) for name in _TRUST_PARTS}
    if parts["bias"] is not None:
        settings = parts["bias"]["settings"]
        parts["bias"]["settings"] = {name: settings[name] for name in settings if name not in ("key", "request")}
    for part in parts.values():
        if part is not None:
            part.pop("request", None)
    return {**findings, **parts}


def _without_paths(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_paths(item) for name, item in value.items() if not _is_path(name, item)}
    return [_without_paths(item) for item in value] if isinstance(value, list | tuple) else value


def _is_path(name: Any, value: Any) -> bool:
    """Return whether a field holds paths; a learner or a metric can have the name of such a field, but it has no text."""
    texts = value if isinstance(value, list | tuple) else [value]
    return name in _NOT_RESULTS and all(isinstance(text, str) for text in texts)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _rounded(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return float(f"{value:.{DIGITS}g}") + 0.0  # 1 and 1.0 are equal, and so are 0.0 and -0.0


def _sorted(values: list[Any]) -> list[Any]:
    return sorted(values, key=lambda value: _canonical(_without_paths(value)))


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)


def _sha256(value: Any) -> str:
    return hashlib.sha256(_canonical(value).encode()).hexdigest()


def format_fingerprints(audit: Audit) -> str:
    """Return the fingerprints of all parts in one text, as `describe_differences` takes it."""
    return ",".join(f"{name}={digest}" for name, digest in audit_fingerprints(audit).items())


def describe_differences(audit: Audit, expected: str) -> list[str]:
    """Return how an audit differs from an expected one, one line each; an empty list if it does not.

    ``expected``: an audit.json; the fingerprint of an audit; or the fingerprints of its parts (`format_fingerprints`).
    """
    check_expected_form(expected)
    if _SHA256.fullmatch(expected):
        actual = audit_fingerprint(audit)
        return [] if actual == expected else [f"the fingerprint is {actual}, expected {expected}"]
    wanted = _part_fingerprints(expected)
    if not wanted:
        return _differing_values(audit, Path(expected))
    found = audit_fingerprints(audit)
    lines = []
    for name in dict.fromkeys((*wanted, *found)):
        if name not in found:
            lines.append(f"{name}: missing")
        elif name not in wanted:
            lines.append(f"{name}: not part of the expected audit")
        elif wanted[name] != found[name]:
            lines.append(f"{name}: different")
    return lines


def check_expected_form(expected: str) -> None:
    """Refuse a text that `describe_differences` cannot compare an audit with, before any work."""
    if _SHA256.fullmatch(expected) or _part_fingerprints(expected):
        return
    if not Path(expected).is_file():
        raise InputError(f"{expected}: no such file, and not the fingerprint of an audit; expected one of both")


def _part_fingerprints(text: str) -> dict[str, str]:
    """Return the fingerprints in a text like ``data=...,metrics=...``; an empty dictionary for another text."""
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    return parts if all(_SHA256.fullmatch(digest) for digest in parts.values()) else {}


def _differing_values(audit: Audit, file: Path) -> list[str]:
    from perdure.audits.results import Audit as StoredAudit  # noqa: PLC0415  (it imports this module)

    pairs = list(_walk(comparable_parts(StoredAudit.load(file)), comparable_parts(audit), ""))
    lines = [f"{path}: {_shown(new)}, expected {_shown(old)}" for path, old, new in pairs[:MOST_SHOWN]]
    return lines + ([f"and {len(pairs) - MOST_SHOWN} more values"] if len(pairs) > MOST_SHOWN else [])


def _walk(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the path of each value that differs, with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys((*old, *new)):
            yield from _walk(old.get(name), new.get(name), f"{path}.{name}" if path else name)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (first, second) in enumerate(zip(old, new, strict=True)):
            yield from _walk(first, second, f"{path}[{index + 1}]")
    elif old != new:
        yield path, old, new


def _shown(value: Any) -> str:
    text = _canonical(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
