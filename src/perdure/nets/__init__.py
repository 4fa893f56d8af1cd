"""Networks whose parts an explainer can see: each activation and each addition is a module of its own.

``build`` makes one by name, with a seed of its own; ``features_of`` reads the penultimate features of any.
"""

from perdure.nets import mlp, plain, resnet
from perdure.nets.features import features_of
from perdure.nets.layers import Add, Network
from perdure.nets.registry import Description, build, count_parameters, describe, names

__all__ = [
    "Add",
    "Description",
    "Network",
    "build",
    "count_parameters",
    "describe",
    "features_of",
    "mlp",
    "names",
    "plain",
    "resnet",
]
