"""Audit a scikit-learn model: an SGDClassifier that follows a drifting table with partial_fit.

Run it with ``python examples/sklearn_sgd.py``.
"""

import copy

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import SGDClassifier

import perdure

FEATURES = 12
Rows = tuple[NDArray[np.float64], NDArray[np.int64]]


def table(quarter: int, test: bool) -> Rows:
    """Return rows of a quarter; the features that decide drift from the first to later ones."""
    rng = np.random.default_rng([quarter, test])
    x = rng.normal(size=(300, FEATURES))
    weights = np.exp(-0.5 * (np.arange(FEATURES) - 3 * quarter) ** 2 / 1.5)
    return x, (x @ weights > 0).astype(np.int64)


tests = [table(quarter, test=True) for quarter in range(4)]

if __name__ == "__main__":
    model, models = SGDClassifier(loss="log_loss", random_state=0), []
    # What perdure needs starts here.
    recorder = perdure.Recorder("runs/sgd", tasks=4, learner="sgd")
    for quarter in range(4):
        for _ in range(10):
            model.partial_fit(*table(quarter, test=False), classes=[0, 1])
        models.append(copy.deepcopy(model))
        recorder.after_task(accuracy=[model.score(*test) for test in tests])
    audit = perdure.audit("runs/sgd", network=models, data=tests, shapc=True, examples=16, keep_maps=True)
    print(audit)
    audit.report("report-sgd.html")
