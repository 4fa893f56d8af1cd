"""List the pages of results that are older than the code they depend on.

    python tools/results_check.py [--write]

Each section of a page in docs/results states when and at which commit it was measured. tools/results_code.toml names the code
that a page depends on. A section is older if this code has changed since; changes of docstrings, comments and formatting do
not count. This does not mean that its numbers are wrong, but they have not been measured since. The exit code is 1 if a
section is older or states no commit. --write copies dates and commits to src/perdure/reproduce/measured.json, which
perdure reproduce --list shows.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from perdure.reproduce.catalogue import MEASURED, measured_entries
from perdure.reproduce.provenance import UNKNOWN, Provenance, read_provenance

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "results"
DEPENDENCIES = Path(__file__).with_name("results_code.toml")


@dataclass(frozen=True)
class Finding:
    """A section of a page, and what is wrong with its age; an empty problem if nothing is."""

    page: str
    section: str
    problem: str


def dependencies(file: Path = DEPENDENCIES) -> dict[str, list[str]]:
    """Return the paths that each page depends on; names of shared groups are replaced by their paths."""
    document = tomllib.loads(file.read_text(encoding="utf-8"))
    shared: dict[str, list[str]] = document["shared"]
    return {
        page: [path for entry in entries for path in shared.get(entry, [entry])]
        for page, entries in document["pages"].items()
    }


def sections(text: str) -> Iterator[tuple[str, list[Provenance]]]:
    """Yield each section of a page that states where its numbers come from, with its lines; the first one has no heading."""
    head, *parts = f"\n{text}".split("\n## ")
    for heading, part in [("", head), *((part.partition("\n")[0], part) for part in parts)]:
        if lines := read_provenance(part):
            yield heading, lines


def changes(root: Path, commit: str, paths: Sequence[str]) -> list[str] | None:
    """Return the commits after this one that changed a path, newest first; None if the clone does not have the commit."""
    command = ["git", "log", "--format=%h %ad %s", "--date=short", f"{commit}..HEAD", "--", *paths]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)  # noqa: S603
    return result.stdout.splitlines() if result.returncode == 0 else None


def changed_files(root: Path, commit: str, paths: Sequence[str]) -> list[str]:
    """Return the files below the paths whose code is not that of the commit."""
    names = _git_text(root, "diff", "--name-only", "--no-renames", commit, "HEAD", "--", *paths).splitlines()
    return [
        name
        for name in names
        if not name.endswith(".py")
        or _code(_git_text(root, "show", f"{commit}:{name}")) != _code(_git_text(root, "show", f"HEAD:{name}"))
    ]


def _git_text(root: Path, *arguments: str) -> str:
    """Return what git prints; nothing if it fails, as for a file that a commit does not have."""
    command = ["git", *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False).stdout  # noqa: S603


def _code(text: str) -> str:
    """Return Python code without docstrings, comments and formatting."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):  # a string that stands alone is a docstring, of an attribute too
            node.body = [item for item in body if not _is_docstring(item)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def check_page(root: Path, name: str, text: str, paths: Sequence[str]) -> list[Finding]:
    """Return a finding for each section of a page."""
    found = [
        Finding(name, section, _problem(root, stated, paths)) for section, lines in sections(text) for stated in lines
    ]
    return found or [Finding(name, "", "states no date and commit")]


def _problem(root: Path, stated: Provenance, paths: Sequence[str]) -> str:
    if stated.commit == UNKNOWN:
        return "was measured with an unknown commit"
    later = changes(root, stated.commit, paths)
    if later is None:
        return f"was measured at commit {stated.commit}, which this clone does not have"
    if not later or not (files := changed_files(root, stated.commit, paths)):
        return ""
    count = f"{len(later)} commit{'' if len(later) == 1 else 's'}"
    return (
        f"was measured {stated.last} at {stated.commit}; {count} since, last {later[0]}; changed code: {_listed(files)}"
    )


def _listed(files: Sequence[str], shown: int = 3) -> str:
    more = f" and {len(files) - shown} more" if len(files) > shown else ""
    return ", ".join(files[:shown]) + more


def main() -> int:
    """Print the findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write measured.json")
    if parser.parse_args().write:
        MEASURED.write_text(json.dumps(measured_entries(PAGES), indent=2) + "\n", encoding="utf-8")
    paths = dependencies()
    findings = [
        finding
        for page in sorted(PAGES.glob("*.md"))
        for finding in check_page(ROOT, page.name, page.read_text(encoding="utf-8"), paths.get(page.name, []))
    ]
    findings += [
        Finding(page.name, "", f"is not in {DEPENDENCIES.name}")
        for page in PAGES.glob("*.md")
        if page.name not in paths
    ]
    problems = [finding for finding in findings if finding.problem]
    for finding in problems:
        where = f"{finding.page}, {finding.section!r}" if finding.section else finding.page
        sys.stdout.write(f"{where}: {finding.problem}\n")
    current = len(findings) - len(problems)
    sys.stdout.write(f"{current} of {len(findings)} sections are as new as the code they depend on.\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
