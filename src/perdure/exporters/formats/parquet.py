"""Parquet: the numbers of an audit as one long table."""

from __future__ import annotations

import io
import math
from pathlib import Path

from perdure.audits import Audit
from perdure.base.files import write_atomically
from perdure.exporters.exporter import exporter, optional_package
from perdure.exporters.tidy_table import TIDY_COLUMNS, tidy_rows


@exporter("parquet", file="audit.parquet")
def write_parquet(audit: Audit, out: str) -> list[Path]:
    """One Parquet table with the columns of the CSV format; needs pyarrow."""
    with optional_package("pyarrow", "parquet"):
        import pyarrow as pa  # noqa: PLC0415
        from pyarrow import parquet  # noqa: PLC0415
    number = dict.fromkeys(("mean", "low", "high"), pa.float64())
    types = {**dict.fromkeys(TIDY_COLUMNS, pa.string()), **number, "runs": pa.int64(), "higher_is_better": pa.bool_()}
    columns = zip(*tidy_rows(audit), strict=True)
    arrays = [
        pa.array([None if isinstance(value, float) and math.isnan(value) else value for value in column], types[name])
        for name, column in zip(TIDY_COLUMNS, columns, strict=True)
    ]
    content = io.BytesIO()
    parquet.write_table(pa.table(arrays, names=list(TIDY_COLUMNS)), content)
    path = Path(out)
    write_atomically(path, content.getvalue())
    return [path]
