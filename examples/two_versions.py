"""Two versions of a model on a table: did the retrained model change by more than retraining changes?"""

import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from torch import Tensor, manual_seed, nn, optim, tensor

import perdure
from perdure.explain import Table

wine = load_wine()
x = ((wine.data - wine.data.mean(axis=0)) / wine.data.std(axis=0)).astype(np.float32)
x_train, x_test, y_train, y_test = train_test_split(x, wine.target, test_size=0.5, stratify=wine.target, random_state=0)


def train(inputs: Tensor, seed: int) -> nn.Module:
    """Return a network trained on the table."""
    manual_seed(seed)
    net = nn.Sequential(nn.Linear(13, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = optim.Adam(net.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs), tensor(y_train)).backward()
        optimizer.step()
    return net.eval()


if __name__ == "__main__":
    this_week = x_train.copy()
    this_week[:, wine.feature_names.index("proline")] = 0  # a broken column: every value is the mean
    names = Table(names=wine.feature_names)
    old, new = (perdure.adapt(train(tensor(rows), seed=0), names) for rows in (x_train, this_week))
    retrained = [perdure.adapt(train(tensor(x_train), seed), names) for seed in range(1, 6)]
    # What perdure needs starts here.
    comparison = perdure.compare(old, new, data=(x_test, y_test), reference=retrained)
    print(comparison)
    for change in comparison.reasons.importance[:3]:
        print(f"{change.feature:12} {change.old:.3f} -> {change.new:.3f} [{change.low:+.3f}, {change.high:+.3f}]")
    comparison.report("changes.html")
