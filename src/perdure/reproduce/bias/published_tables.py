"""The numbers of the bias paper's Tables 3 to 12 as printed, with one misprint corrected."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from importlib import resources

from perdure.base.errors import InputError, error_suggestion

METHODS = {
    "gradcam": "Grad-CAM",
    "grad": "Grad",
    "gradient_x_input": "GI",
    "guided_backprop": "GB",
    "deepshap": "DeepSHAP",
    "lime": "LIME",
    "lrp": "LRP",
    "integrated_gradients": "IG",
}
"""Method names: perdure's, and the paper's."""
MISPRINTS = {("lenet", "bottom", 0.9, "integrated_gradients"): 0.00716}
"""The last cell of Table 3 is printed as 0.0716, ten times its neighbors: a zero is missing."""


@dataclass(frozen=True)
class PublishedTable:
    """The table of one network: ``bias[side, share][method]``, without the methods that the paper did not run."""

    number: int
    network: str
    data: str
    bias: dict[tuple[str, float], dict[str, float]]

    def at(self, method: str, side: str, share: float) -> float:
        """Return the printed bias, NaN if the paper has none."""
        return self.bias[side, share].get(method, math.nan)


def published_tables() -> dict[str, PublishedTable]:
    """Return all ten tables, keyed by perdure's network names."""
    text = (resources.files(__package__) / "published_bias.csv").read_text(encoding="utf-8")
    tables: dict[str, PublishedTable] = {}
    for row in csv.DictReader(text.splitlines()):
        network, side, share = row["network"], row["side"], float(row["share"])
        table = tables.setdefault(network, PublishedTable(int(row["table"]), network, row["data"], {}))
        table.bias[side, share] = {
            method: MISPRINTS.get((network, side, share, method), float(row[method]))
            for method in METHODS
            if row[method]
        }
    return tables


def published_table(network: str) -> PublishedTable:
    """Return the table of one network."""
    tables = published_tables()
    if network not in tables:
        raise InputError(
            f"network {network!r}: the paper has no table for it; {error_suggestion(network, list(tables))}"
        )
    return tables[network]
