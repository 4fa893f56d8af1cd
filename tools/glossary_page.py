"""Write the glossary of the documentation: the entries of the report's glossary, and the terms of glossary.toml.

    python tools/glossary_page.py docs/glossary.md

The page is made by the build and not committed. Texts of numbers come from `perdure.report.glossary`, so the report and this
page say the same.
"""

from __future__ import annotations

import html
import re
import sys
import tomllib
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

from perdure.report.glossary import ABBREVIATIONS, GLOSSARY, Term

INTRODUCTION = """\
# Glossary

Terms of perdure in one or two sentences, and every number of the [report](report.md) with how it is computed. One word has one
meaning in Python, on the command line and in reports. [Abbreviations](#abbreviations) are at the end; the
[concept pages](concepts/index.md) explain the ideas.
"""
TERMS: Mapping[str, str] = tomllib.loads(Path(__file__).with_name("glossary.toml").read_text(encoding="utf-8"))
"""Terms that are not numbers of the report."""


def anchor(name: str) -> str:
    """Return the anchor of an entry."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def entry_of_number(term: Term) -> str:
    """Return the entry of a number of the report."""
    short = f" ({term.short})" if term.short and term.short != term.name else ""
    pages = re.findall(r"docs/([\w-]+\.md)", term.source)
    papers = [part.strip() for part in term.source.split(";") if part.strip() and "docs/" not in part]
    links = [f"[{Path(page).stem.replace('-', ' ')}]({page})" for page in pages]
    sources = f" ({'; '.join([*papers, *links])})" if papers or links else ""
    name = f"**{_text(term.name)}**{{ #{anchor(term.name)} }}{_text(short)}"
    return f"{name}<br>{_text(term.meaning)}<br>*Computed*: {_text(term.computed)}{sources}"


def _text(text: str) -> str:
    """Return a text without characters that Markdown would interpret."""
    return re.sub(r"([\\*_|\[\]])", r"\\\1", html.escape(text, quote=False))


def glossary_page() -> str:
    """Return the page."""
    entries = {name: f"**{name}**{{ #{anchor(name)} }}<br>{text}" for name, text in TERMS.items()}
    entries |= {term.name: entry_of_number(term) for term in GLOSSARY.values()}
    lines = [INTRODUCTION]
    for letter, names in groupby(sorted(entries, key=_sorted_as), key=lambda name: _sorted_as(name)[0].upper()):
        lines += [f"## {letter}", ""]
        for name in names:
            lines += [entries[name], ""]
    lines += ["## Abbreviations", "", "| abbreviation | stands for |", "|---|---|"]
    lines += [
        f"| {_text(short)} | {_text(meaning)} |" for short, meaning in sorted(ABBREVIATIONS.items(), key=_by_letter)
    ]
    return "\n".join(lines) + "\n"


def _sorted_as(name: str) -> str:
    return name.lower().removeprefix("95 % ")


def _by_letter(item: tuple[str, str]) -> tuple[str, str]:
    return item[0].lower(), item[0]


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(glossary_page(), encoding="utf-8")
