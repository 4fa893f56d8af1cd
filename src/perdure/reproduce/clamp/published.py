"""Numbers printed in the CLAMP paper (Rivera et al. 2022), for comparison."""

# Tables 1a, 3 and 5: transfer efficiency, experience retention, expertise translation.
ATARI_PROPERTIES = {
    "Clear": (0.12, 0.90, 0.03),
    "Progress & Compress": (0.06, 0.35, 1.16),
    "EWC_online": (0.03, 0.60, 0.82),
    "EWC": (0.01, 0.74, 0.72),
    "Impala": (0.10, 0.33, 1.26),
}
MNIST_PROPERTIES = {
    "GEM_1100": (0.79, 0.99, 0.30),
    "GEM_4400": (0.88, 1.00, 0.11),
    "EWC_online": (0.96, 0.44, 0.58),
    "EWC": (0.86, 0.44, 0.56),
    "MAS": (0.32, 0.91, 0.09),
    "L2": (0.74, 0.53, 0.65),
    "Naive_Rehearsal_1100": (1.02, 0.89, 0.35),
    "Naive_Rehearsal_4400": (0.92, 0.97, 0.63),
    "NormalNN": (0.99, 0.45, 0.53),
}
CIFAR100_PROPERTIES = {
    "EWC_online": (0.35, 1.0, 2.11),
    "EWC": (0.60, 0.61, 0.00),
    "MAS": (0.33, 0.94, 1.04),
    "L2": (0.12, 1.00, 0.00),
    "Naive_Rehearsal_1400": (0.57, 0.84, 1.03),
    "Naive_Rehearsal_5600": (0.58, 0.91, 1.37),
    "NormalNN": (0.52, 0.62, 0.00),
    "SI": (0.39, 0.93, 1.21),
}

# Tables 1b, 4 and 6: rows are trained, columns evaluated.
ATARI_TRANSFER = (
    (1.00, 0.15, -0.13, 0.01, -0.16, 0.03),
    (-0.09, 1.00, 0.21, -0.02, -0.05, 0.02),
    (0.04, -0.15, 1.00, 0.01, 0.04, 0.08),
    (0.13, 0.05, -0.33, 1.00, 0.10, 0.11),
    (0.01, 0.07, -0.16, -0.12, 1.00, -0.03),
    (-0.03, -0.16, -0.12, -0.01, -0.38, 1.00),
)
MNIST_TRANSFER = (
    (1.0, 0.0, 0.03, 0.05, -0.1),
    (-0.4, 0.88, 0.07, 0.07, 0.12),
    (-0.2, 0.38, 0.99, -0.1, -0.4),
    (0.27, -0.2, -0.7, 1.0, 0.4),
    (-0.2, 0.0, -0.2, -0.2, 0.75),
)
CIFAR100_TRANSFER = (
    (0.96, 0.15, 0.06, 0.07, 0.04),
    (-0.56, 0.91, 0.01, -0.01, 0.01),
    (0.00, -0.13, 1.00, 0.01, 0.00),
    (0.00, 0.00, -0.12, 1.00, 0.01),
    (0.01, 0.09, 0.10, -0.09, 1.00),
)

# Tables 1c and 7.
ATARI_DIFFICULTY = (0.09, 0.08, 0.15, 0.07, 0.10, 0.08)
CIFAR100_DIFFICULTY = (0.0, 0.3, 0.3, 0.3, 0.3)

# Table 8: transfer efficiency, MNIST and CIFAR-100.
ACROSS = {
    "EWC_online": (0.96, 0.35),
    "EWC": (0.86, 0.60),
    "MAS": (0.32, 0.33),
    "L2": (0.74, 0.12),
    "Naive_Rehearsal_Low": (1.02, 0.57),
    "Naive_Rehearsal_High": (0.92, 0.58),
    "NormalNN": (0.99, 0.52),
    "SI": (0.85, 0.39),
}

# Mean squared errors printed in the paper.
LOSSES = {"MNIST": 0.005, "CIFAR-100": 0.01, "Atari": 0.007}

# Table 2: mean squared errors of the parameters of the synthetic problem.
SYNTHETIC_ERRORS = {"transfer": 0.12, "difficulty": 0.04, "efficiency": 0.02, "retention": 0.0, "translation": 0.01}
