"""A section for the model card of a Hugging Face model."""

from __future__ import annotations

from pathlib import Path

from perdure import __version__
from perdure.audits import MEASURES, Audit
from perdure.base.errors import InputError, escape_control_characters
from perdure.base.files import LARGEST_TEXT, read_bytes, write_atomically
from perdure.exporters.exporter import exporter
from perdure.exporters.tables import Table, measures_table, transposed

BEGIN, END = "<!-- perdure: begin -->", "<!-- perdure: end -->"


@exporter("model-card", file="README.md")
def write_model_card(audit: Audit, out: str) -> list[Path]:
    """A section with metrics, meanings and limits in a model card; the rest of an existing card is kept."""
    path = Path(out)
    text = read_bytes(path, LARGEST_TEXT).decode(errors="surrogateescape") if path.exists() else ""
    write_atomically(path, _with_section(path, text, _section(audit)).encode(errors="surrogateescape"))
    return [path]


def _with_section(path: Path, text: str, section: str) -> str:
    """Return a card with the section in the place of the old one, or at the end."""
    if text.count(BEGIN) != text.count(END) or text.count(BEGIN) > 1:
        raise InputError(f"{path}: expected one section between {BEGIN} and {END}, or none. Remove incomplete ones.")
    if BEGIN not in text:
        return f"{text.rstrip()}\n\n{section}" if text.strip() else section
    before, rest = text.split(BEGIN)
    return f"{before}{section.rstrip()}{rest.split(END)[1]}"


def _section(audit: Audit) -> str:
    table = measures_table(audit)
    parts = [f"{BEGIN}\n## Continual-learning audit\n", _setting(audit), transposed(table).markdown(), _meanings(audit)]
    missing = [
        f"- {escape_control_characters(', '.join(dict.fromkeys(n for names in holders.values() for n in names)))}: {why}"
        for why, holders in audit.missing().items()
    ]
    if missing:
        parts.append("Not measured:\n\n" + "\n".join(missing) + "\n")
    parts.append(
        f"Measured with perdure {__version__}; `perdure export PATH --to model-card` updates this section.\n{END}\n"
    )
    return "\n".join(parts)


def _setting(audit: Audit) -> str:
    """Return what was measured: benchmarks, tasks and runs, as a table so that names are escaped."""
    rows = tuple(
        (entry.title, entry.benchmark or "given matrices", len(entry.tasks), len(entry.runs))
        for entry in audit.learners
    )
    return Table("setting", "", ("learner", "benchmark", "tasks", "runs"), rows).markdown()


def _meanings(audit: Audit) -> str:
    names = [name for name in MEASURES if any(name in entry.measures for entry in audit.learners)]
    lines = [f"- {audit.label(name)}: {MEASURES[name].meaning}" for name in names]
    return "Values are means over runs with 95 % intervals in brackets; ↑ higher is better, ↓ lower is better.\n\n" + (
        "\n".join(lines) + "\n"
    )
