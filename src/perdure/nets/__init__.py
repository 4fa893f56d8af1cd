"""Networks whose parts an explainer can see: each activation and each addition is a module of its own.

``build`` makes one by name, with a seed of its own; ``features_of`` reads the penultimate features of any.
"""

from perdure.nets import bottleneck, classic, mlp, plain, resnet, vit, wide_resnet
from perdure.nets.features import features_and_outputs, features_of, head_of
from perdure.nets.layers import Add, Network
from perdure.nets.registry import Description, build, count_parameters, describe, names

__all__ = [
    "Add",
    "Description",
    "Network",
    "bottleneck",
    "build",
    "classic",
    "count_parameters",
    "describe",
    "features_and_outputs",
    "features_of",
    "head_of",
    "mlp",
    "names",
    "plain",
    "resnet",
    "vit",
    "wide_resnet",
]
