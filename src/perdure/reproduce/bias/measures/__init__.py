"""Measures of explainers that only the experiments of the attribution-bias paper use, on arrays and on networks."""

from perdure.reproduce.bias.measures.attack import attacked_overlap, top_overlap
from perdure.reproduce.bias.measures.boxes import box_masks, inside_shares, pointing_hits
from perdure.reproduce.bias.measures.perspectives import gini, infidelity, max_sensitivity
from perdure.reproduce.bias.measures.regions import (
    RegionAgreement,
    RegionDistributions,
    region_agreement,
    region_distributions,
    relative_attribution,
    share_inside,
)
from perdure.reproduce.bias.measures.removal import removal_area_under, removal_top_players

__all__ = [
    "RegionAgreement",
    "RegionDistributions",
    "attacked_overlap",
    "box_masks",
    "gini",
    "infidelity",
    "inside_shares",
    "max_sensitivity",
    "pointing_hits",
    "region_agreement",
    "region_distributions",
    "relative_attribution",
    "removal_area_under",
    "removal_top_players",
    "share_inside",
    "top_overlap",
]
