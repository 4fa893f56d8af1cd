"""Networks whose layers explainers can handle: each activation and each addition is a separate module.

``build`` creates a network by name, initialized from a seed; ``features_of`` returns the penultimate features of any
network. Networks are imported on first use. Other packages can add networks through the entry-point group
``perdure.networks``.
"""

from perdure.nets.features import features_and_outputs, features_of, head_of
from perdure.nets.registry import (
    Add,
    Description,
    Network,
    build,
    count_parameters,
    describe,
    names,
    network,
    summaries,
)

__all__ = [
    "Add",
    "Description",
    "Network",
    "build",
    "count_parameters",
    "describe",
    "features_and_outputs",
    "features_of",
    "head_of",
    "names",
    "network",
    "summaries",
]
