"""The package runs on Windows and macOS: no unguarded function of POSIX, and every text file has a stated encoding."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.release.helpers import ROOT

POSIX_MODULES = {"fcntl", "grp", "pwd", "resource", "termios", "tty"}
POSIX_NAMES = {
    "os": {"chown", "fork", "getpgid", "getuid", "killpg", "mkfifo", "sched_getaffinity", "setsid", "sysconf", "uname"},
    "signal": {"SIGHUP", "SIGKILL", "SIGUSR1", "SIG_BLOCK", "SIG_SETMASK", "pthread_kill", "pthread_sigmask", "alarm"},
}
GUARDED = {
    ("base/resources.py", "resource"): "except ImportError",
    ("nets/registry.py", "resource"): "except OSError",  # reached only where /proc/meminfo was read
    ("nets/registry.py", "os.sysconf"): 'if hasattr(os, "sysconf")',
    ("engine/local.py", "signal.SIGHUP"): 'if not hasattr(signal, "pthread_sigmask")',
    ("engine/local.py", "signal.SIG_BLOCK"): 'if not hasattr(signal, "pthread_sigmask")',
    ("engine/local.py", "signal.SIG_SETMASK"): 'if not hasattr(signal, "pthread_sigmask")',
    ("engine/local.py", "signal.pthread_sigmask"): 'if not hasattr(signal, "pthread_sigmask")',
    ("cli/__init__.py", "signal.pthread_kill"): 'if hasattr(signal, "pthread_kill")',
    ("cli/engines.py", "os.sched_getaffinity"): 'if hasattr(os, "sched_getaffinity")',
}
"""What exists on POSIX only, and the text that guards it."""


def sources() -> list[Path]:
    return sorted((ROOT / "src/perdure").rglob("*.py"))


def posix_only(tree: ast.AST) -> Iterator[str]:
    """Yield the modules and functions that do not exist on Windows."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from POSIX_MODULES & {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module in POSIX_MODULES:
            yield node.module
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield from (f"{node.value.id}.{name}" for name in POSIX_NAMES.get(node.value.id, set()) & {node.attr})


def test_functions_of_posix_are_guarded():
    found = {}
    for file in sources():
        text = file.read_text("utf-8")
        for name in posix_only(ast.parse(text)):
            found[file.relative_to(ROOT / "src/perdure").as_posix(), name] = text
    assert set(found) == set(GUARDED)
    assert [key for key, text in found.items() if GUARDED[key] not in text] == []


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import os\nos.fork()", ["os.fork"]),
        ("from fcntl import flock", ["fcntl"]),
        ("import signal\nsignal.signal(signal.SIGINT, f)", []),
    ],
)
def test_the_search_finds_functions_of_posix(code, names):
    assert list(posix_only(ast.parse(code))) == names


def texts_without_encoding(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that read or write text in the encoding of the system, which is not UTF-8 on Windows."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        positional = {"read_text": 0, "write_text": 1}.get(node.func.attr)
        if positional is None or any(keyword.arg == "encoding" for keyword in node.keywords):
            continue
        if len(node.args) <= positional:
            yield node.lineno


def test_text_files_have_a_stated_encoding():
    found = {
        f"{file.name}:{line}"
        for file in sources()
        for line in texts_without_encoding(ast.parse(file.read_text("utf-8")))
    }
    assert found == set()
    assert list(texts_without_encoding(ast.parse("p.read_text()\np.read_text('utf-8')\np.write_text(x)"))) == [1, 3]
