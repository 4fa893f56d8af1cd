"""Abbreviations and symbols that appear in reports, spelled out."""

from collections.abc import Mapping
from types import MappingProxyType

_LEARNERS = {
    "A-GEM": "averaged gradient episodic memory",
    "BFP": "backward feature projection",
    "Co2L": "contrastive continual learning",
    "DER": "dark experience replay",
    "DER++": "dark experience replay with labels",
    "EWC": "elastic weight consolidation",
    "GEM": "gradient episodic memory",
    "L2": "penalty on the squared (L2) distance from the previous solution",
    "LwF": "learning without forgetting",
    "MAS": "memory aware synapses",
    "SI": "synaptic intelligence",
    "X-DER": "extended dark experience replay",
    "iCaRL": "incremental classifier and representation learning",
    "online EWC": "online elastic weight consolidation",
}
_EXPLAINERS = {
    "DeepLIFT": "deep learning important features",
    "DeepSHAP": "DeepLIFT averaged over background examples, an approximation of Shapley values",
    "Grad-CAM": "gradient-weighted class activation mapping",
    "LIME": "local interpretable model-agnostic explanations",
    "LRP": "layer-wise relevance propagation",
}
_METRICS = {
    "A": "accuracy on the tasks seen so far, averaged over steps",
    "AAA": "average anytime accuracy",
    "ACC": "accuracy",
    "AIA": "average incremental accuracy",
    "BWT": "backward transfer",
    "BWT+": "positive backward transfer",
    "CE": "computational efficiency",
    "CL": "continual learning",
    "CL_score": "continual learning score",
    "CL_stability": "continual learning stability",
    "CLAMP": "continual learning analysis via a model of performance",
    "FWT": "forward transfer",
    "LA": "learning accuracy",
    "MRLEP": "most recent learning evaluation performance",
    "MRTLP": "most recent terminal learning performance",
    "MS": "model size efficiency",
    "MeGe": "mean generalizability",
    "REM": "remembering",
    "ReCo": "relative consistency",
    "S=": "pairs of networks that both classify the example correctly",
    "SHAP": "Shapley additive explanations",
    "SHAPC": "SHAP value consistency",
    "SHAPC-Mean": "mean SHAP value consistency",
    "SHAPC-Var": "variation of SHAP value consistency over examples",
    "SSIM": "structural similarity index measure",
    "SSS": "samples storage size efficiency",
    "S≠": "pairs of networks of which exactly one classifies the example correctly",
    "TNR": "true negative rate",
    "TPR": "true positive rate",
    "W1": "equal weights of the seven criteria",
    "W2": "second weight vector of the paper, in the version that reproduces its printed scores",
    "W3": "third weight vector of the paper",
    "WC-ACC": "worst-case accuracy",
    "WF10": "windowed forgetting within 10 evaluations",
    "WP10": "windowed plasticity within 10 evaluations",
    "min-ACC": "average minimum accuracy",
}
_GENERAL = {
    "CIFAR": "image data sets of the Canadian Institute for Advanced Research",
    "CPU": "central processing unit",
    "CSV": "comma-separated values",
    "HTML": "hypertext markup language",
    "JSON": "JavaScript object notation",
    "MAP": "maximum a posteriori: the fit with the highest probability under data and prior",
    "MLP": "multilayer perceptron",
    "MNIST": "images of handwritten digits, modified from the National Institute of Standards and Technology",
    "NEW": "the later version of the model",
    "OLD": "the earlier version of the model",
    "PDF": "portable document format",
    "PNG": "portable network graphics",
    "ReLU": "rectified linear unit",
    "SGD": "stochastic gradient descent",
    "SHA-256": "secure hash algorithm with 256 bits: a checksum of the data",
    "SVG": "scalable vector graphics",
    "lr": "learning rate",
}
_NAMES_ON_THE_PAGE = {
    "agem": "A-GEM",
    "bfp": "BFP",
    "co2l": "Co2L",
    "deepshap": "DeepSHAP",
    "der": "DER",
    "der++": "DER++",
    "ewc": "EWC",
    "gem": "GEM",
    "gradcam": "Grad-CAM",
    "icarl": "iCaRL",
    "l2": "L2",
    "lime": "LIME",
    "lrp": "LRP",
    "lwf": "LwF",
    "mas": "MAS",
    "online-ewc": "online EWC",
    "si": "SI",
    "xder": "X-DER",
}
"""Learners and explainers as they are named on the command line and in tables."""

_SPELLED_OUT = {**_LEARNERS, **_EXPLAINERS, **_METRICS, **_GENERAL}
ABBREVIATIONS: Mapping[str, str] = MappingProxyType(
    _SPELLED_OUT | {name: _SPELLED_OUT[abbreviation] for name, abbreviation in _NAMES_ON_THE_PAGE.items()}
)
"""What each abbreviation, symbol and short name of a learner or explainer stands for."""
