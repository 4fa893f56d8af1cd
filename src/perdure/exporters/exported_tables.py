"""All tables of an audit."""

from __future__ import annotations

from perdure.audits import Audit
from perdure.exporters.shapc_tables import shapc_differences_table, shapc_table
from perdure.exporters.tables import (
    Table,
    accuracy_differences_table,
    accuracy_table,
    correlation_table,
    has_variants,
    measures_table,
    progress_table,
    properties_table,
    provenance_table,
    runs_table,
    transfer_table,
    variants_table,
)
from perdure.exporters.trust_tables import trust_tables


def exported_tables(audit: Audit) -> tuple[Table, ...]:
    """Return every table for which the audit has numbers."""
    available = [measures_table(audit), runs_table(audit), accuracy_table(audit), progress_table(audit)]
    if audit.accuracy_differences:
        available.append(accuracy_differences_table(audit))
    if has_variants(audit):
        available.append(variants_table(audit))
    if audit.correlation:
        available.append(correlation_table(audit))
    for number, fit in enumerate(audit.clamp, start=1):
        suffix = f"-{number}" if len(audit.clamp) > 1 else ""
        available += [properties_table(fit, f"properties{suffix}"), transfer_table(fit, f"transfer{suffix}")]
    if audit.shapc:
        available.append(shapc_table(audit))
    if audit.differences:
        available.append(shapc_differences_table(audit))
    available += trust_tables(audit)
    if audit.provenance:
        available.append(provenance_table(audit))
    return tuple(available)
