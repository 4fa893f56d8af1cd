"""JSON: the complete audit, as in audit.json."""

from __future__ import annotations

from pathlib import Path

from perdure.audits import FILE, Audit
from perdure.exporters.exporter import exporter


@exporter("json", file=FILE)
def write_audit_json(audit: Audit, out: str) -> list[Path]:
    """The complete audit as JSON, which perdure reads again."""
    path = Path(out)
    audit.save(path)
    return [path]
