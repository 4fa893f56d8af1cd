"""Run the notebooks of the documentation and write each one as a page with its outputs and figures.

    python tools/notebook_pages.py docs/notebooks

The pages are made by the build and not committed; the notebooks are committed without outputs. Cells run in this process, one
after another, in an empty folder, as in a notebook: the value of a last expression is shown, figures as pictures and objects
with ``_repr_html_`` as HTML.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from perdure import figures

STYLE = """\
<style>
.notebook-output pre > code { background: none; white-space: pre-wrap;
  border-left: .15rem solid var(--md-default-fg-color--lightest); }
.notebook-output table th, .notebook-output table td { min-width: 0 !important; padding: .5em .7em !important; }
</style>"""
"""Outputs are set apart from code and wrapped, and cells of wide tables are as narrow as their text."""


@dataclass
class Cell:
    """A cell: its text, and what a code cell printed and returned."""

    kind: str
    text: str
    printed: str = ""
    value: Any = None


@dataclass
class Notebook:
    """A notebook that was run: its cells and the variables after the last one."""

    path: Path
    cells: list[Cell]
    variables: dict[str, Any] = field(default_factory=dict)


def read_cells(path: Path) -> list[Cell]:
    """Return the cells of a notebook file without outputs."""
    content = json.loads(path.read_text(encoding="utf-8"))
    for number, cell in enumerate(content["cells"], start=1):
        if cell.get("outputs") or cell.get("execution_count") is not None:
            raise ValueError(f"{path}, cell {number}: has outputs; clear them before committing")
    return [Cell(cell["cell_type"], "".join(cell["source"])) for cell in content["cells"]]


def run_notebook(path: Path) -> Notebook:
    """Run the code cells of a notebook in the current folder. An exception names its cell."""
    notebook = Notebook(path, read_cells(path), {"__name__": "__main__"})
    for number, cell in enumerate(notebook.cells, start=1):
        if cell.kind == "code":
            output = io.StringIO()
            try:
                with contextlib.redirect_stdout(output):
                    cell.value = _run(cell.text, f"<{path.name}, cell {number}>", notebook.variables)
            except Exception as error:
                error.add_note(f"in cell {number} of {path.name}")
                raise
            cell.printed = output.getvalue()
    return notebook


def _run(source: str, name: str, variables: dict[str, Any]) -> Any:
    """Execute statements and return the value of the last one if it is an expression without a final semicolon."""
    tree = ast.parse(source, name)
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr) or source.rstrip().endswith(";"):
        exec(compile(tree, name, "exec"), variables)  # noqa: S102  (the notebooks of this project)
        return None
    exec(compile(ast.Module(tree.body[:-1], []), name, "exec"), variables)  # noqa: S102
    return eval(compile(ast.Expression(last.value), name, "eval"), variables)  # noqa: S307


def page(notebook: Notebook, pictures: Path) -> str:
    """Return the page of a notebook that was run; its figures are written to ``pictures``."""
    name = notebook.path.name
    note = f'[Download this notebook]({name}){{ download="{name}" }}: it is run with every change of perdure.\n'
    parts = []
    for number, cell in enumerate(notebook.cells, start=1):
        if cell.kind == "markdown":
            parts.append(cell.text)
        else:
            parts += [f"```python\n{cell.text}\n```", *_outputs(cell, pictures / f"{notebook.path.stem}-{number}.png")]
    return "\n\n".join([parts[0], note, STYLE, *parts[1:]]) + "\n"


def _outputs(cell: Cell, picture: Path) -> Iterator[str]:
    """Yield what a code cell printed, and its value."""
    if cell.printed.strip():
        yield _text(cell.printed.rstrip())
    if isinstance(cell.value, Figure):
        figures.save(cell.value, picture)
        target = f"{picture.parent.name}/{picture.name}"
        yield f"[![{_last_line(cell.text)}]({target})]({target})"
    elif hasattr(cell.value, "_repr_html_"):
        html = " ".join(cell.value._repr_html_().split())  # on one line, so that Markdown leaves it as it is
        yield f'<div class="notebook-output">{html}</div>'
    elif cell.value is not None:
        yield _text(repr(cell.value))


def _text(output: str) -> str:
    return f"``` {{ .text .notebook-output .no-copy }}\n{output}\n```"


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1].replace("[", "(").replace("]", ")")


def write_pages(folder: Path) -> list[Path]:
    """Run every notebook in a folder and write its page beside it."""
    written = []
    pictures = folder.resolve() / "images"
    pictures.mkdir(exist_ok=True)
    for path in sorted(folder.resolve().glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as empty, contextlib.chdir(empty):
            text = page(run_notebook(path), pictures)
        target = path.with_suffix(".md")
        target.write_text(text, encoding="utf-8")
        written.append(target)
    return written


if __name__ == "__main__":
    os.environ.setdefault("PERDURE_WORKERS", "1")
    for written_page in write_pages(Path(sys.argv[1])):
        sys.stdout.write(f"{written_page}\n")
