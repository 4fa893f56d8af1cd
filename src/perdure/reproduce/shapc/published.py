"""The numbers of the SHAPC paper's Tables 1 and 2."""

from __future__ import annotations

TABLE_1_MEASURES = ("average_accuracy", "forgetting", "shapc_mean", "shapc_var")
"""The columns of Table 1."""

_TABLE_1 = {
    "split-cifar10": {
        "lwf": (19.61, 96.16, 25.08, 11.99),
        "si": (19.45, 93.03, 23.03, 13.52),
        "icarl": (63.24, 26.71, 45.29, 11.18),
        "agem": (20.64, 94.16, 26.92, 10.58),
        "der": (71.54, 27.93, 31.26, 12.37),
        "der++": (73.36, 23.42, 31.18, 12.68),
        "co2l": (73.93, 25.13, 33.63, 13.17),
        "xder": (67.02, 15.93, 34.37, 10.62),
        "bfp": (77.14, 12.66, 31.88, 19.03),
    },
    "split-cifar100": {
        "lwf": (9.96, 89.04, 28.46, 10.85),
        "si": (9.28, 89.14, 28.81, 10.58),
        "icarl": (46.55, 29.58, 43.26, 9.52),
        "agem": (9.36, 89.11, 28.31, 10.29),
        "der": (36.64, 54.19, 34.06, 10.57),
        "der++": (39.63, 52.18, 33.23, 10.28),
        "co2l": (33.43, 47.07, 39.33, 11.63),
        "xder": (46.19, 25.35, 38.08, 10.19),
        "bfp": (47.45, 30.28, 39.80, 9.80),
    },
    "split-tiny-imagenet": {
        "lwf": (7.89, 76.22, 26.41, 9.12),
        "si": (6.68, 62.80, 33.50, 7.47),
        "icarl": (23.94, 24.79, 43.99, 7.90),
        "agem": (7.91, 76.56, 25.23, 7.72),
        "der": (16.41, 66.17, 31.72, 8.03),
        "der++": (18.73, 59.63, 32.72, 8.29),
        "co2l": (18.86, 51.43, 34.65, 9.23),
        "xder": (23.60, 51.38, 35.18, 8.16),
        "bfp": (25.78, 32.44, 38.82, 8.55),
    },
}
"""In percent, by benchmark and learner."""

_TABLE_2 = {
    "lwf": {0.1: (18.69, 23.08), 0.3: (28.46, 10.85), 0.5: (41.55, 6.03)},
    "icarl": {0.1: (34.94, 16.76), 0.3: (43.26, 9.52), 0.5: (54.47, 5.80)},
    "bfp": {0.1: (31.01, 18.21), 0.3: (39.80, 9.80), 0.5: (51.57, 5.89)},
}
"""SHAPC-Mean and SHAPC-Var on Split CIFAR-100 by learner and share of important values, in percent."""


def published_measure(benchmark: str, measure: str) -> dict[str, float]:
    """Return a column of Table 1 for each learner, as a fraction; calibrated SHAPC is compared with SHAPC-Mean."""
    column = TABLE_1_MEASURES.index("shapc_mean" if measure == "shapc_calibrated" else measure)
    return {learner: row[column] / 100 for learner, row in _TABLE_1[benchmark].items()}


def published_shares(learner: str) -> dict[float, tuple[float, float]]:
    """Return SHAPC-Mean and SHAPC-Var of a learner at each share of Table 2, as fractions; empty if it is not in it."""
    return {share: (mean / 100, var / 100) for share, (mean, var) in _TABLE_2.get(learner, {}).items()}
