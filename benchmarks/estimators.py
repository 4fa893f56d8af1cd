"""Error of Shapley estimators against evaluations and against CPU time: ours and those of shapiq, captum and shap.

    python benchmarks/estimators.py [--games lenet resnet18 vit-small cancer digits synthetic] [--images 8]
        [--budgets 10000 41000 160000] [--shapiq-python PATH] [--data-dir DIR] [--rows FILE ...]
    python benchmarks/estimators.py --tables --figure docs/results/estimators.png --rows FILE ...

Games: three image networks with 1024 pixels as players, and three models of tables. The networks are trained on 500 images of
each class of CIFAR-10, the first ones in the official order, and explained on the first 100 test images of each class
(benchmarks/image_networks.py); all rows of benchmarks/results/estimators.jsonl belong to these images. The reference is the
mean of two long runs with other seeds; its noise is estimated from their difference and subtracted from every squared error.
Models that are sums of trees have exact values from `shap.TreeExplainer`. Overhead is the CPU time beyond the evaluations of
the game; one gradient counts as three evaluations. Imports are not counted: every estimator first runs with a small budget.
shapiq 1.8 needs Python 3.12: pass the Python of an environment with `pip install shapiq lightgbm xgboost` (OddSHAP uses
lightgbm, RegressionMSR xgboost, or else lightgbm). Its games are evaluated in this process, so that evaluations cost the same
for all.

Every finished measurement is appended to a file (``--rows``), and a later call continues from there. The overhead of shapiq in
rows without the field ``warm`` includes the import of shapiq, about two seconds. A later call measures such rows again, unless
they took so long that this does not matter; of two rows with equal settings, the later one counts. ``--tables`` and
``--figure`` show the measurements of these files and measure nothing. The page of all comparisons (make bench) is computed from
benchmarks/results/estimators.jsonl.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import lru_cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from comparison import (
    ERROR,
    SAME_ERROR,
    Benchmark,
    Bound,
    Comparison,
    NotMeasured,
    Options,
    Side,
    add_options,
    missing,
    our_side,
)
from image_networks import ImageSet, image_set
from perdure import explain
from perdure.base.errors import InputError
from perdure.explain.shapley.game import NetworkGame
from perdure.explain.shapley.players import pixel_players
from perdure.explain.shapley.shared_layers import fast_game
from perdure.reproduce.provenance import UNKNOWN, Provenance, source_commit

FloatArray = NDArray[np.float64]
IMAGE_GAMES = ("lenet", "resnet18", "vit-small")
TABLE_GAMES = ("cancer", "digits", "synthetic")
ROWS = Path(tempfile.gettempdir()) / "perdure-estimators.jsonl"
REFERENCES = ROWS.with_suffix("")
FINISHED = Path(__file__).parent / "results" / "estimators.jsonl"
"""The measurements from which the page of comparisons is computed."""
WORKER = Path(__file__).parent / "peers" / "shapiq_worker.py"
PEER_MEMORY = 14 * 2**30
REFERENCE_SEEDS = (1001, 1002)
REFERENCE_EVALUATIONS = {"lenet": 160_000, "resnet18": 40_000, "vit-small": 40_000, "synthetic": 2_000_000}
KEY = ("game", "index", "estimator", "budget")
OURS = ("regression", "gradient", "antithetic", "castro", "leverage")
SHAPIQ = ("OddSHAP", "RegressionMSR", "LeverageSHAP", "PermutationSamplingSV")
ROWS_PER_BATCH = 256
READY_EVALUATIONS = {"gradient": 8, "leverage": 5}
"""Evaluations per player of the first run of an estimator, which is not measured: the least that it takes; of the others 2."""
IMPORTED_SECONDS = 25
"""Longer overheads of shapiq are used although they include about two seconds for imports."""


class MeasuredGame:
    """A game that counts evaluations and their CPU time; a gradient counts as three evaluations."""

    def __init__(self, game: Any) -> None:
        self.game, self.players = game, game.players
        self.evaluations, self.seconds = 0, 0.0
        for name, cost in (("gradients", 3), ("values_along_orders", 1)):
            if hasattr(game, name):
                setattr(self, name, self._measured(getattr(game, name), cost))

    def __call__(self, coalitions: Any) -> FloatArray:
        """Return the values of coalitions."""
        values: FloatArray = self._measured(self.game, 1)(coalitions)
        return values

    def _measured(self, call: Callable[..., Any], cost: int) -> Callable[..., Any]:
        def measured(*arguments: Any) -> Any:
            start = time.process_time()
            result = call(*arguments)
            self.seconds += time.process_time() - start
            self.evaluations += cost * int(np.prod(np.shape(result)[: 2 if len(arguments) == 2 else 1]))
            return result

        return measured


class TableGame:
    """A model of a table and one row as a game; absent features have their mean."""

    def __init__(self, score: Callable[[FloatArray], FloatArray], row: FloatArray, mean: FloatArray) -> None:
        self.score, self.row, self.mean, self.players = score, row, mean, len(row)

    def __call__(self, coalitions: Any) -> FloatArray:
        """Return the score of each coalition."""
        present = np.asarray(coalitions, dtype=bool)
        return self.score(np.where(present, self.row, self.mean)).astype(np.float64)


@lru_cache(maxsize=4)
def table_model(name: str) -> tuple[Any, FloatArray, FloatArray]:
    """Return a fitted model, eight explained rows and the mean row."""
    from sklearn.datasets import load_breast_cancer, load_digits, make_classification
    from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
    from sklearn.neural_network import MLPClassifier

    if name == "cancer":
        inputs, labels = load_breast_cancer(return_X_y=True)
        model = GradientBoostingClassifier(n_estimators=100, max_depth=4, random_state=0)
    elif name == "digits":
        inputs, labels = load_digits(return_X_y=True)
        labels = labels >= 5
        model = RandomForestClassifier(50, max_depth=10, random_state=0)
    else:
        inputs, labels = make_classification(3000, 200, n_informative=40, n_redundant=40, random_state=0)
        model = MLPClassifier((100, 50), max_iter=60, random_state=0)
    inputs = inputs.astype(np.float32)  # the type that trees compare with their thresholds
    model.fit(inputs, labels)
    return model, inputs[:: len(inputs) // 8][:8], inputs.mean(axis=0)


def table_score(name: str) -> Callable[[FloatArray], FloatArray]:
    """Return the explained score: the log odds of the boosted trees, else a probability."""
    model = table_model(name)[0]
    if name == "cancer":
        return lambda rows: np.asarray(model.decision_function(rows))
    return lambda rows: np.asarray(model.predict_proba(rows)[:, 1])


class Games:
    """All games by name and number of the example, and their references, which are kept in a folder."""

    def __init__(
        self,
        images: Callable[[], ImageSet],
        references: Path = REFERENCES,
        reference_evaluations: Mapping[str, int] = REFERENCE_EVALUATIONS,
    ) -> None:
        self.images, self.references, self.reference_evaluations = images, references, reference_evaluations
        self._last: tuple[tuple[str, int], NetworkGame] | None = None
        self._ready: set[tuple[str, bool]] = set()

    def make_ready(self, key: Mapping[str, Any]) -> None:
        """Run an estimator with a small budget before its first measurement, so that imports are not part of its time."""
        kind = str(key["estimator"]), key["game"] in IMAGE_GAMES
        if kind not in self._ready:
            self._ready.add(kind)
            players = self.game(key["game"], key["index"]).players
            call = measurement(self, {**key, "budget": READY_EVALUATIONS.get(kind[0], 2) * players}, None)
            if call is not None:
                call()

    def image_game(self, name: str, index: int) -> NetworkGame:
        """Return the game of one test image: the players are pixels, absent pixels have the mean image's values."""
        if self._last is None or self._last[0] != (name, index):
            images = self.images()
            row = images.rows(8)[index]
            net = images.network(name).requires_grad_(False)
            label, players, mean = int(images.test_labels[row]), pixel_players(images.shape), images.train.mean(0)
            game = NetworkGame(net, images.test[row], label, players, mean, batch_size=ROWS_PER_BATCH)
            self._last = (name, index), fast_game(game)
        return self._last[1]

    def game(self, name: str, index: int) -> Any:
        """Return a game by name."""
        if name in IMAGE_GAMES:
            return self.image_game(name, index)
        _, rows, mean = table_model(name)
        return TableGame(table_score(name), rows[index], mean)

    def reference(self, name: str, index: int) -> tuple[FloatArray, float]:
        """Return Shapley values and the estimated square of their distance from the exact ones."""
        if name in ("cancer", "digits"):
            import shap

            model, rows, mean = table_model(name)
            output = "raw" if name == "cancer" else "probability"
            explainer = shap.TreeExplainer(
                model, mean[None], model_output=output, feature_perturbation="interventional"
            )
            values = np.asarray(explainer.shap_values(rows[index : index + 1], check_additivity=False))
            return values.reshape(len(mean), -1)[:, -1].astype(np.float64), 0.0
        self.references.mkdir(parents=True, exist_ok=True)
        file = self.references / f"{name}-{index}.npy"
        if not file.exists():
            game = self.game(name, index)
            estimator = "regression" if name in IMAGE_GAMES else "antithetic"
            evaluations = self.reference_evaluations[name]
            runs = [our_values(game, estimator, evaluations, seed).values for seed in REFERENCE_SEEDS]
            np.save(file, np.stack(runs))
        first, second = np.load(file)
        return (first + second) / 2, float(np.square((first - second) / 2).sum())


def our_values(game: Any, estimator: str, budget: int, seed: int = 0, players: int | None = None) -> Any:
    """Return the result of one of our estimators with at most this number of evaluations."""
    return explain.shapley(game, players or game.players, 10**7, estimator, seed, max_evaluations=budget)


class Measured:
    """Values, evaluations, and the CPU seconds of the evaluations and of everything else."""

    def __init__(self, values: Any, evaluations: int, seconds: float, overhead: float, software: str) -> None:
        self.values, self.evaluations = np.asarray(values, dtype=np.float64), evaluations
        self.seconds, self.overhead, self.software = seconds, overhead, software


def ours(games: Games, name: str, index: int, estimator: str, budget: int) -> Measured:
    """Run one of our estimators."""
    game = MeasuredGame(games.game(name, index))
    start = time.process_time()
    result = our_values(game, estimator, budget)
    overhead = time.process_time() - start - game.seconds
    return Measured(result.values, result.evaluations, game.seconds, overhead, f"perdure {version('perdure')}")


def captum_values(games: Games, name: str, index: int, budget: int) -> Measured:
    """Run captum's ShapleyValueSampling, whole permutations."""
    from captum.attr import ShapleyValueSampling

    game = games.image_game(name, index)
    samples = max(1, budget // game.players)
    shape = game.example.shape
    mask = torch.arange(game.players).reshape(1, 1, *shape[1:]).expand(1, *shape).contiguous()
    evaluated = {"seconds": 0.0}

    def forward(rows: torch.Tensor) -> torch.Tensor:
        start = time.process_time()
        scores: torch.Tensor = game.model(rows)
        evaluated["seconds"] += time.process_time() - start
        return scores

    torch.manual_seed(0)
    start = time.process_time()
    with torch.no_grad():
        maps = ShapleyValueSampling(forward).attribute(
            game.example[None],
            baselines=game.baseline[None],
            target=game.target,
            feature_mask=mask,
            n_samples=samples,
            perturbations_per_eval=64,
        )
    total = time.process_time() - start
    overhead = total - evaluated["seconds"]
    software = f"captum {version('captum')}"
    return Measured(
        maps[0, 0].flatten().numpy(), samples * (game.players - 1) + 2, evaluated["seconds"], overhead, software
    )


def shap_values(games: Games, name: str, index: int, budget: int) -> Measured:
    """Run shap's PermutationExplainer, whole pairs of permutations."""
    import shap

    game = MeasuredGame(games.game(name, index))
    start = time.process_time()
    explainer = shap.PermutationExplainer(game, np.zeros((1, game.players)), seed=0)
    pairs = max(1, budget // (2 * game.players + 1))
    values = explainer(
        np.ones((1, game.players)), max_evals=pairs * (2 * game.players + 1), silent=True, batch_size=ROWS_PER_BATCH
    ).values[0]
    overhead = time.process_time() - start - game.seconds
    return Measured(values, game.evaluations, game.seconds, overhead, f"shap {version('shap')}")


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (PEER_MEMORY, PEER_MEMORY))


def shapiq_values(
    games: Games, name: str, index: int, approximator: str, budget: int, python: str, options: Any = None
) -> Measured:
    """Run an approximator of shapiq in its own process; it may use 14 GiB of memory."""
    game = games.game(name, index)
    job = {"approximator": approximator, "players": game.players, "budget": budget, "seed": 0, "options": options or {}}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [python, str(WORKER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        preexec_fn=_limit_memory,  # noqa: PLW1509
    )
    seconds = 0.0
    with process:
        sent, received = process.stdin, process.stdout
        if sent is None or received is None:
            raise RuntimeError("the process of shapiq has no pipes")
        sent.write(json.dumps(job).encode() + b"\n")
        sent.flush()
        while line := received.readline():
            message = json.loads(line)
            if message["kind"] == "result":
                sent.close()
                if "error" in message:
                    raise MemoryError(message["error"])
                return Measured(
                    message["values"], message["evaluations"], seconds, message["seconds"], message["software"]
                )
            width = -(-message["players"] // 8)
            packed = np.frombuffer(received.read(message["rows"] * width), dtype=np.uint8)
            rows = np.unpackbits(packed.reshape(-1, width), axis=1, count=message["players"]).astype(bool)
            start = time.process_time()
            values = np.asarray(game(rows), dtype="<f8")
            seconds += time.process_time() - start
            sent.write(values.tobytes())
            sent.flush()
    raise MemoryError("the process of shapiq ended without a result")


def measurements(
    games: Games, arguments: argparse.Namespace
) -> Iterator[tuple[dict[str, Any], Callable[[], Measured]]]:
    """Yield the settings of each measurement and the call that makes it."""
    for name in arguments.games:
        budgets = [budget for budget in arguments.budgets if name in IMAGE_GAMES or budget < 10**5]
        for index in range(arguments.images):
            for budget in budgets:
                for estimator in arguments.estimators:
                    key = {"game": name, "index": index, "estimator": estimator, "budget": budget}
                    call = measurement(games, key, arguments.shapiq_python)
                    if call is not None:
                        yield key, call


def measurement(games: Games, key: Mapping[str, Any], python: str | None) -> Callable[[], Measured] | None:
    """Return the call that makes a measurement; None for estimators that this game or installation does not have."""
    name, index, estimator, budget = (key[part] for part in ("game", "index", "estimator", "budget"))
    if estimator in OURS:
        return partial(ours, games, name, index, estimator, budget)
    if estimator == "captum":
        return partial(captum_values, games, name, index, budget) if name in IMAGE_GAMES else None
    if estimator == "shap":
        return None if missing("shap") else partial(shap_values, games, name, index, budget)
    if python is None:
        return None
    kind, _, factor = estimator.partition("/")
    options = {"interaction_factor": int(factor)} if factor else {}
    return partial(shapiq_values, games, name, index, kind, budget, python, options)


def measure(games: Games, key: dict[str, Any], call: Callable[[], Measured]) -> dict[str, Any]:
    """Return a row: the settings with error, evaluations and CPU seconds, or the reason why there is no result."""
    exact, noise = games.reference(key["game"], key["index"])
    square = float(exact @ exact) - noise
    commit, modified = source_commit()
    origin = {"date": datetime.now(tz=UTC).date().isoformat(), "commit": commit, "modified": modified}
    try:
        games.make_ready(key)
        result = call()
    except (MemoryError, InputError) as failure:
        return {**key, "failed": str(failure)[:200], **origin}
    error = max(float(np.square(result.values - exact).sum()) - noise, 0.0)
    return {
        **key,
        "error": float(np.sqrt(error / square)),
        "evaluations": result.evaluations,
        "evaluation_seconds": round(result.seconds, 4),
        "overhead_seconds": round(result.overhead, 4),
        "software": result.software,
        "warm": True,
        **origin,
    }


def read_rows(file: Path) -> list[dict[str, Any]]:
    """Return the finished measurements; of two with equal settings, the later one."""
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return list({tuple(row[name] for name in KEY): row for row in rows}.values())


def includes_imports(row: Mapping[str, Any]) -> bool:
    """Return whether a substantial part of the overhead is the import of shapiq."""
    return (
        str(row.get("software", "")).startswith("shapiq")
        and not row.get("warm", False)
        and float(row["overhead_seconds"]) < IMPORTED_SECONDS
    )


def same(row: Mapping[str, Any], key: Mapping[str, Any]) -> bool:
    """Return whether a row has these settings."""
    return all(row[name] == key[name] for name in key)


def medians(rows: list[dict[str, Any]]) -> dict[tuple[str, int, str], dict[str, float]]:
    """Return, for each game, budget and estimator, medians over examples and their number."""
    groups: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for row in rows:
        if "error" in row:
            groups.setdefault((row["game"], row["budget"], row["estimator"]), []).append(row)
    names = ("error", "evaluations", "evaluation_seconds", "overhead_seconds")
    return {
        key: {"examples": len(group)} | {name: float(np.median([row[name] for row in group])) for name in names}
        for key, group in groups.items()
    }


def games_of(rows: list[dict[str, Any]]) -> list[str]:
    """Return the games that have measurements, images first."""
    return [game for game in (*IMAGE_GAMES, *TABLE_GAMES) if any(row["game"] == game for row in rows)]


def tables(rows: list[dict[str, Any]]) -> str:
    """Return a Markdown table for each game, with the paired comparison to OddSHAP, and the list of failures."""
    found, lines = medians(rows), []
    for game in games_of(rows):
        lines += [
            f"\n**{game}**\n",
            "| evaluations | estimator | error | overhead, CPU s | error / OddSHAP | examples |",
        ]
        lines += ["|---|---|---|---|---|---|"]
        for (name, budget, estimator), middle in sorted(found.items(), key=lambda item: (item[0][1], item[1]["error"])):
            if name != game:
                continue
            ratios = paired_ratios(rows, game, budget, estimator)
            compared = f"{np.median(ratios):.2g}" if len(ratios) else "-"
            lines.append(
                f"| {budget:,} | {estimator} | {middle['error']:.3g} | {middle['overhead_seconds']:.2f} | {compared} "
                f"| {middle['examples']:.0f} |"
            )
    failures = dict.fromkeys(
        f"{row['game']}, {row['budget']:,} evaluations, {row['estimator']}: {row['failed']}"
        for row in rows
        if "failed" in row
    )
    software = sorted({row["software"] for row in rows if "software" in row})
    dates = sorted({row["date"] for row in rows if "date" in row})
    return "\n".join([*lines, "", *(f"- {failure}" for failure in failures), "", ", ".join(software + dates)])


def paired_ratios(rows: list[dict[str, Any]], game: str, budget: int, estimator: str) -> FloatArray:
    """Return the ratio of the errors of an estimator and of OddSHAP, for each example that both have."""
    errors: dict[str, dict[int, float]] = {"OddSHAP": {}, estimator: {}}
    for row in rows:
        if row["game"] == game and row["budget"] == budget and row["estimator"] in errors and "error" in row:
            errors[row["estimator"]][row["index"]] = row["error"]
    both = sorted(set(errors["OddSHAP"]) & set(errors[estimator]))
    return np.array([errors[estimator][index] / errors["OddSHAP"][index] for index in both])


def draw(rows: list[dict[str, Any]], file: Path) -> None:
    """Draw the median error against evaluations and against CPU time, one row of panels per game."""
    import matplotlib.pyplot as plt

    found = medians(rows)
    games = games_of(rows)
    names = [name for name in (*OURS, "captum", "shap", *SHAPIQ, "OddSHAP/40") if any(key[2] == name for key in found)]
    colors = dict(zip(names, plt.get_cmap("tab20").colors, strict=False))  # type: ignore[attr-defined]
    figure, axes = plt.subplots(len(games), 2, figsize=(9, 2.6 * len(games)), squeeze=False, sharey="row")
    for panels, game in zip(axes, games, strict=True):
        for name in names:
            points = sorted((key[1], middle) for key, middle in found.items() if key[0] == game and key[2] == name)
            if not points:
                continue
            errors = [middle["error"] for _, middle in points]
            seconds = [middle["evaluation_seconds"] + middle["overhead_seconds"] for _, middle in points]
            style = {
                "color": colors[name],
                "marker": "o" if name in OURS else "s",
                "linestyle": "-" if name in OURS else "--",
                "linewidth": 2.2 if name == "regression" else 1.1,
                "markersize": 4,
            }
            panels[0].plot([middle["evaluations"] for _, middle in points], errors, label=name, **style)
            panels[1].plot(seconds, errors, label=name, **style)
        panels[0].set_ylabel(f"{game}\nrelative error")
        for panel in panels:
            panel.set(xscale="log", yscale="log")
            for axis in (panel.xaxis, panel.yaxis):
                axis.set_major_formatter("{x:g}")
                axis.set_minor_formatter("")
            panel.grid(alpha=0.3)
    axes[-1][0].set_xlabel("evaluations")
    axes[-1][1].set_xlabel("CPU seconds, evaluations included")
    handles = {
        label: handle for panel in axes[:, 0] for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="upper center", ncols=5, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.5 / (2.6 * len(games))))
    figure.savefig(file, dpi=110)


def checkpoints(images: ImageSet, count: int, budgets: list[int]) -> None:
    """Print errors on LeNet after one more epoch, with and without the values of the earlier checkpoint as ``prior``."""
    earlier = images.network("lenet")
    later = copy.deepcopy(earlier).train()
    optimizer = torch.optim.SGD(later.parameters(), lr=0.02, momentum=0.9)
    images.train_epoch(later, optimizer, torch.Generator().manual_seed(1))
    for budget in budgets:
        errors: dict[str, list[float]] = {"change": [], "values": [], "gradients": [], "prior": []}
        for index in images.rows(count):
            games = []
            for net in (earlier, later):
                frozen = net.eval().requires_grad_(False)
                players = pixel_players(images.shape)
                arguments = (images.test[index], int(images.test_labels[index]), players, images.train.mean(0))
                games.append(fast_game(NetworkGame(frozen, *arguments, batch_size=ROWS_PER_BATCH)))
            runs = [our_values(games[1], "regression", 160_000, seed).values for seed in REFERENCE_SEEDS]
            exact, noise = (runs[0] + runs[1]) / 2, float(np.square((runs[0] - runs[1]) / 2).sum())
            prior = our_values(games[0], "regression", budget, 2001).values
            results = {
                "change": prior,
                "values": our_values(lambda rows, game=games[1]: game(rows), "regression", budget, 0, 1024).values,
                "gradients": our_values(games[1], "regression", budget).values,
                "prior": explain.shapley(
                    games[1], 1024, 10**7, "regression", max_evaluations=budget, prior=prior
                ).values,
            }
            square = float(exact @ exact) - noise
            for name, values in results.items():
                errors[name].append(np.sqrt(max(float(np.square(values - exact).sum()) - noise, 0.0) / square))
        print(budget, {name: round(float(np.median(each)), 4) for name, each in errors.items()}, flush=True)


TITLES = {
    "lenet": "pixels, LeNet",
    "resnet18": "pixels, ResNet-18",
    "vit-small": "pixels, small ViT",
    "cancer": "30 features, boosted trees",
    "digits": "64 features, random forest",
    "synthetic": "200 features, perceptron",
}
ALTERNATIVES = {
    "captum": "`ShapleyValueSampling`",
    "shap": "`PermutationExplainer`",
    **{name: f"`{name}`" for name in SHAPIQ},
    "OddSHAP/40": "`OddSHAP` with a quarter of its terms",
}
COMPARED = "regression"
SMOKE_GAMES = {"lenet": (600, 1_200), "cancer": (300, 600)}
SMOKE_SHAPIQ: tuple[str, ...] = ("OddSHAP", "RegressionMSR", "PermutationSamplingSV")
LEAST_ERROR = 1e-12
Measurement: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Reached:
    """Our CPU seconds to an error; ``bound``: of the ratio, if the error is outside the errors that were measured."""

    seconds: float
    bound: Bound


def seconds_of(row: Measurement) -> float:
    """Return the CPU seconds of a measurement: the evaluations of the game and everything else."""
    return max(float(row["evaluation_seconds"]) + float(row["overhead_seconds"]), 1e-4)  # rows have four digits


def error_of(row: Measurement) -> float:
    """Return the relative error; zero counts as the least error that is told apart."""
    return max(float(row["error"]), LEAST_ERROR)


def seconds_to_error(rows: Sequence[Measurement], error: float) -> Reached:
    """Return the CPU seconds to an error, interpolated between the budgets of one example on logarithmic scales.

    If the smallest budget has less error than asked for, its time is an upper bound, so the ratio is at least that of this
    time. If no budget reaches the error, the time of the largest one is a lower bound, so the ratio is at most that.
    """
    ordered = sorted(rows, key=lambda row: int(row["budget"]))
    seconds = [seconds_of(row) for row in ordered]
    errors = np.minimum.accumulate([error_of(row) for row in ordered])
    if errors[0] <= error:
        return Reached(seconds[0], "at least" if errors[0] < error else "")
    if errors[-1] > error:
        return Reached(seconds[-1], "at most")
    logarithm = np.interp(-np.log(error), -np.log(errors), np.log(seconds))
    return Reached(float(np.exp(logarithm)), "")


def row_comparisons(rows: Sequence[Measurement]) -> Iterator[Comparison | NotMeasured]:
    """Compare ``regression`` with every estimator of another library: the error at each budget, and the time to its error."""
    by_key = {(row["game"], row["estimator"], row["budget"], row["index"]): row for row in rows if "error" in row}
    for game in games_of([dict(row) for row in rows]):
        mine: dict[int, list[Measurement]] = {}
        for (name, estimator, _, index), row in by_key.items():
            if (name, estimator) == (game, COMPARED):
                mine.setdefault(index, []).append(row)
        compared: set[tuple[str, int]] = set()
        for other, title in ALTERNATIVES.items():
            pairs: dict[int, list[tuple[Measurement, Measurement]]] = {}
            for (name, estimator, budget, index), row in by_key.items():
                if (name, estimator) == (game, other) and (game, COMPARED, budget, index) in by_key:
                    pairs.setdefault(budget, []).append((by_key[game, COMPARED, budget, index], row))
            for budget, both in sorted(pairs.items()):
                compared.add((other, budget))
                yield from budget_comparisons(game, title, budget, both, mine, summary=budget == max(pairs))
        yield from unmeasured(rows, game, compared)


def budget_comparisons(
    game: str,
    title: str,
    budget: int,
    pairs: Sequence[tuple[Measurement, Measurement]],
    mine: Mapping[int, Sequence[Measurement]],
    summary: bool,
) -> Iterator[Comparison | NotMeasured]:
    """Compare errors at one budget, and the times to the other's error; medians over the examples that both have."""
    task = f"Shapley values, {TITLES[game]}, {budget:,} evaluations"

    def middle(side: int, value: Callable[[Measurement], float]) -> float:
        return float(np.median([value(pair[side]) for pair in pairs]))

    errors, seconds = ([middle(side, value) for side in (0, 1)] for value in (error_of, seconds_of))
    evaluations = [round(middle(side, lambda row: float(row["evaluations"]))) for side in (0, 1)]
    stale = any(includes_imports(row) for _, row in pairs)
    peer = Side(
        title,
        str(pairs[0][1]["software"]),
        errors[1],
        seconds=None if stale else seconds[1],
        error=errors[1],
        evaluations=evaluations[1],
    )
    examples = f"{len(pairs)} example{'' if len(pairs) == 1 else 's'}"
    yield Comparison(
        task,
        ERROR,
        our_side(f"`{COMPARED}`", errors[0], seconds=seconds[0], error=errors[0], evaluations=evaluations[0]),
        peer,
        ratio=float(np.median([error_of(other) / error_of(own) for own, other in pairs])),
        summary=summary,
        note=examples,
    )
    if stale:
        return
    reached = [seconds_to_error(mine[row["index"]], error_of(row)) for _, row in pairs]
    bounds = {each.bound for each in reached if each.bound}
    if len(bounds) > 1:
        reason = "on some examples our smallest budget has less error, on others our largest one has more"
        yield NotMeasured(f"{task}, CPU time to the same error", f"{peer.version}, {title}", reason)
        return
    ratios = [seconds_of(row) / each.seconds for (_, row), each in zip(pairs, reached, strict=True)]
    yield Comparison(
        task,
        SAME_ERROR,
        our_side(f"`{COMPARED}`", float(np.median([each.seconds for each in reached])), error=errors[1]),
        replace(peer, value=seconds[1]),
        ratio=float(np.median(ratios)),
        bound=bounds.pop() if bounds else "",
        summary=summary,
        note=examples,
    )


def unmeasured(rows: Sequence[Measurement], game: str, compared: Collection[tuple[str, int]]) -> Iterator[NotMeasured]:
    """Yield which estimators have no result at which budgets of ours, except for those (estimator, budget) that do, and why."""
    cold = [row for row in rows if row["game"] == game and "error" in row and includes_imports(row)]
    if cold:
        names = dict.fromkeys(f"{ALTERNATIVES[row['estimator']]} ({row['budget']:,})" for row in cold)
        reason = "the stored time includes the import of shapiq, about two seconds; it has to be measured again"
        yield NotMeasured(f"CPU time of Shapley values, {TITLES[game]} (evaluations)", ", ".join(names), reason)
    budgets = sorted({int(row["budget"]) for row in rows if (row["game"], row["estimator"]) == (game, COMPARED)})
    failures = {
        (row["estimator"], row["budget"]): str(row["failed"]) for row in rows if "failed" in row and row["game"] == game
    }
    reasons: dict[tuple[str, str], list[str]] = {}
    for other, title in ALTERNATIVES.items():
        if "/" in other or (other == "captum" and game not in IMAGE_GAMES):
            continue
        absent: dict[str, list[str]] = {}
        for budget in budgets:
            if (other, budget) not in compared:
                absent.setdefault(failures.get((other, budget), "no rows"), []).append(f"{budget:,}")
        for reason, without in absent.items():
            reasons.setdefault((reason, ", ".join(without)), []).append(title)
    for (reason, missed), others in reasons.items():
        yield NotMeasured(f"Shapley values, {TITLES[game]}, {missed} evaluations", ", ".join(others), reason)


def smoke_rows(options: Options, folder: Path) -> Iterator[dict[str, Any]]:
    """Measure one small image and one row of a table with estimators that are installed."""
    games = Games(lambda: image_set(options), folder, {"lenet": 2_000})
    python: str | None = options.shapiq_python
    peers = SMOKE_SHAPIQ
    if python is None and not missing("shapiq"):
        python, peers = sys.executable, SMOKE_SHAPIQ[2:]  # the others need shapiq 1.8
    for game, budgets in SMOKE_GAMES.items():
        if game in TABLE_GAMES and missing("shap"):  # for the exact values of trees
            continue
        for budget in budgets:
            # A process of shapiq takes seconds to start: one budget of one game.
            others = peers if game in TABLE_GAMES and budget == budgets[0] else ()
            for estimator in (COMPARED, "captum", "shap", *others):
                key = {"game": game, "index": 0, "estimator": estimator, "budget": budget}
                call = measurement(games, key, python)
                if call is not None:
                    yield measure(games, key, call)


def estimator_benchmark(options: Options) -> Iterator[Comparison | NotMeasured]:
    """Yield the comparisons of the finished measurements; the smoke version measures its own."""
    if not options.smoke:
        yield from row_comparisons(read_rows(FINISHED))
        return
    with tempfile.TemporaryDirectory() as folder:
        yield from row_comparisons(list(smoke_rows(options, Path(folder))))


def finished_provenance() -> Provenance:
    """Return where the finished measurements come from.

    Rows without a commit are older than this field. They count as measured at the commit that added the file.
    """
    rows = read_rows(FINISHED)
    first = min(rows, key=lambda row: (str(row["date"]), "commit" in row))
    days = sorted(date.fromisoformat(str(row["date"])) for row in rows)
    parts = {part for row in rows if "software" in row for part in str(row["software"]).split(", ")}
    commit = str(first.get("commit") or _first_commit(FINISHED))
    modified = any(bool(row.get("modified")) for row in rows)
    return Provenance(days[0], days[-1], commit, modified, ", ".join(sorted(parts)), "")


def _first_commit(file: Path) -> str:
    command = ["git", "log", "--diff-filter=A", "--format=%h", "--abbrev=10", "--", file.name]
    found = subprocess.run(command, cwd=file.parent, capture_output=True, text=True, check=False).stdout.split()
    return found[-1] if found else UNKNOWN


BENCHMARKS = (
    Benchmark(
        "shapley-estimators",
        "Shapley values by number of evaluations and by time",
        f"""Computed from `benchmarks/results/estimators.jsonl`, whose rows `python benchmarks/estimators.py` measures
(hours; it continues where it stopped). Both sides were measured by that program, with the same evaluations of the
game. Every estimator is compared with `{COMPARED}`: its error at the same number of evaluations, and our CPU time to
its error, interpolated between our budgets; ≥ and ≤ mark errors outside of them. Medians over the examples that both
have; ratios are medians of paired ratios. Times include the evaluations. shapiq runs in its own process, which
evaluates the game in ours. Evaluations of the tables take microseconds, so most of the time of `{COMPARED}` there is
its own. Which estimator when, all games and what was tried: [error of Shapley estimators](estimators.md).""",
        estimator_benchmark,
        stored=finished_provenance,
    ),
)


def main() -> None:
    """Make the measurements that are missing and print one line for each; or show those that were made."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--games", nargs="+", default=[*IMAGE_GAMES, *TABLE_GAMES], choices=[*IMAGE_GAMES, *TABLE_GAMES]
    )
    parser.add_argument("--images", type=int, default=2, help="examples per game, at most 8")
    parser.add_argument("--budgets", type=int, nargs="+", default=[2_000, 10_000])
    parser.add_argument("--estimators", nargs="+", default=[*OURS, "captum", "shap", *SHAPIQ])
    add_options(parser)
    parser.add_argument(
        "--rows", type=Path, nargs="+", default=[ROWS], help="files of measurements; new ones go to the first"
    )
    parser.add_argument("--tables", action="store_true", help="print Markdown tables of the measurements")
    parser.add_argument(
        "--checkpoints", action="store_true", help="measure what an earlier checkpoint's values are worth"
    )
    parser.add_argument("--figure", type=Path, help="draw the measurements")
    arguments = parser.parse_args()
    if arguments.tables or arguments.figure:
        rows = [row for file in arguments.rows for row in read_rows(file)]
        if arguments.tables:
            print(tables(rows))
        if arguments.figure:
            draw(rows, arguments.figure)
        return
    torch.set_num_threads(1)
    threadpool_limits(1)
    warnings.simplefilter("ignore")
    options = Options(data_dir=arguments.data_dir)
    if arguments.checkpoints:
        checkpoints(image_set(options), arguments.images, arguments.budgets)
        return
    games = Games(lambda: image_set(options))
    for key, call in measurements(games, arguments):
        finished = [row for file in arguments.rows for row in read_rows(file) if same(row, key)]
        if finished and not (includes_imports(finished[-1]) and arguments.shapiq_python):
            continue
        row = measure(games, key, call)
        with arguments.rows[0].open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
