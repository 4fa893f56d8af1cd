"""Metrics on arrays that only the experiments of the attribution-bias paper use."""

from perdure.reproduce.bias.metrics.boxes import box_masks, inside_shares, pointing_hits
from perdure.reproduce.bias.metrics.perspectives import gini, infidelity, max_sensitivity
from perdure.reproduce.bias.metrics.regions import (
    RegionDistributions,
    region_distributions,
    relative_attribution,
    share_inside,
)
from perdure.reproduce.bias.metrics.removal import area_under, top_players

__all__ = [
    "RegionDistributions",
    "area_under",
    "box_masks",
    "gini",
    "infidelity",
    "inside_shares",
    "max_sensitivity",
    "pointing_hits",
    "region_distributions",
    "relative_attribution",
    "share_inside",
    "top_players",
]
