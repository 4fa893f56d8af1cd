"""Write one page of the API reference for every public module: all names of its ``__all__``.

    python tools/api_pages.py docs/api

The pages are made by the build and not committed. A public name without a docstring is an error.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from types import ModuleType

MODULES = {
    "perdure": "The functions and classes that most users need.",
    "perdure.metrics": "Metrics as functions of arrays, intervals and tests.",
    "perdure.metrics.lifelong": "The lifelong-learning metrics of New et al.",
    "perdure.audits": "Audits of records: performance, reasons, causes and trust.",
    "perdure.comparisons": "Two versions of a model.",
    "perdure.policies": "Policies of the release gate and of verdicts.",
    "perdure.explain": "Attributions and Shapley values.",
    "perdure.surrogate": "CLAMP: simulate, fit, predict and design curricula.",
    "perdure.record": "Records: what a run leaves on disk.",
    "perdure.learners": "Learners and the training loop.",
    "perdure.tasks": "Benchmarks and your own data as tasks.",
    "perdure.nets": "Built-in networks.",
    "perdure.importers": "Results of other frameworks.",
    "perdure.exporters": "Results in the formats of other tools.",
    "perdure.figures": "Figures of results.",
    "perdure.runs": "From a record or checkpoints to networks and data.",
    "perdure.engine": "Where units of work run.",
}


def undocumented(module: ModuleType) -> list[str]:
    """Return the public names of a module that have no docstring of their own; constants need none."""
    found = []
    for name in module.__all__:
        value = getattr(module, name)
        if (inspect.isclass(value) or inspect.isfunction(value)) and not (value.__doc__ or "").strip():
            found.append(f"{module.__name__}.{name}")
    return found


def page(module: ModuleType, summary: str) -> str:
    """Return the page of a module."""
    names = [name for name in module.__all__ if not inspect.ismodule(getattr(module, name))]
    members = "".join(f"        - {name}\n" for name in names)
    return (
        f"# {module.__name__}\n\n{summary}\n\n::: {module.__name__}\n    options:\n      show_root_toc_entry: false\n"
        f"      show_if_no_docstring: true\n      heading_level: 2\n      separate_signature: true\n"
        f"      show_signature_annotations: true\n      filters: ['!^_']\n      members:\n{members}"
    )


def main(folder: Path) -> int:
    """Write all pages."""
    folder.mkdir(parents=True, exist_ok=True)
    problems = []
    for name, summary in MODULES.items():
        module = importlib.import_module(name)
        problems += undocumented(module)
        (folder / f"{name}.md").write_text(page(module, summary), encoding="utf-8")
    for problem in problems:
        sys.stderr.write(f"{problem}: public, but without a docstring\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
