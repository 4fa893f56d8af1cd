"""Error of Shapley estimators against evaluations and against CPU time: ours and those of shapiq, captum and shap.

    python benchmarks/estimators.py [--games lenet resnet18 vit-small cancer digits synthetic] [--images 8]
        [--budgets 10000 41000 160000] [--shapiq-python PATH] [--rows FILE ...]
    python benchmarks/estimators.py --tables --figure docs/results/estimators.png --rows FILE ...

Games: three image networks with 1024 pixels as players, trained on CIFAR-10, and three models of tables. The reference is
the mean of two long runs with other seeds; its noise is estimated from their difference and subtracted from every squared
error. Models that are sums of trees have exact values from `shap.TreeExplainer`. Overhead is the CPU time beyond the
evaluations of the game; one gradient counts as three evaluations. shapiq 1.8 needs Python 3.12: pass the Python of an
environment that has it (with lightgbm for OddSHAP). Its games are evaluated in this process, so that evaluations cost the
same for all.

Every finished measurement is appended to a file (``--rows``), and a later call continues from there. ``--tables`` and
``--figure`` show the measurements of these files and measure nothing.
"""

import argparse
import copy
import json
import os
import resource
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from explain_speed import NETWORKS, images, trained
from perdure import explain
from perdure.base.errors import InputError
from perdure.explain.shapley.game import NetworkGame
from perdure.explain.shapley.players import pixel_players
from perdure.explain.shapley.shared_layers import fast_game

FloatArray = NDArray[np.float64]
NETWORKS["vit-small"] = (48, 12, 0.05)
IMAGE_GAMES = ("lenet", "resnet18", "vit-small")
TABLE_GAMES = ("cancer", "digits", "synthetic")
ROWS = Path(tempfile.gettempdir()) / "perdure-estimators.jsonl"
WORKER = Path(__file__).parent / "peers" / "shapiq_worker.py"
PEER_MEMORY = 14 * 2**30
REFERENCE_SEEDS = (1001, 1002)
REFERENCE_EVALUATIONS = {"lenet": 160_000, "resnet18": 40_000, "vit-small": 40_000, "synthetic": 2_000_000}
OURS = ("regression", "gradient", "antithetic", "castro", "leverage")
SHAPIQ = ("OddSHAP", "RegressionMSR", "LeverageSHAP", "PermutationSamplingSV")
ROWS_PER_BATCH = 256


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


@lru_cache(maxsize=1)
def image_game(name: str, index: int) -> NetworkGame:
    """Return the game of one test image: 1024 pixels, absent pixels have the mean image's values."""
    net = trained(name).requires_grad_(False)
    train, _, test, labels = images()
    example = test[index]
    players = pixel_players(tuple(example.shape))
    return fast_game(NetworkGame(net, example, int(labels[index]), players, train.mean(0), batch_size=ROWS_PER_BATCH))


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


def game_of(name: str, index: int) -> Any:
    """Return a game by name."""
    if name in IMAGE_GAMES:
        return image_game(name, index * (1000 // 8))
    _, rows, mean = table_model(name)
    return TableGame(table_score(name), rows[index], mean)


def reference(name: str, index: int) -> tuple[FloatArray, float]:
    """Return Shapley values and the estimated square of their distance from the exact ones."""
    if name in ("cancer", "digits"):
        import shap

        model, rows, mean = table_model(name)
        output = "raw" if name == "cancer" else "probability"
        explainer = shap.TreeExplainer(model, mean[None], model_output=output, feature_perturbation="interventional")
        values = np.asarray(explainer.shap_values(rows[index : index + 1], check_additivity=False))
        return values.reshape(len(mean), -1)[:, -1].astype(np.float64), 0.0
    folder = ROWS.with_suffix("")
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}-{index}.npy"
    if not file.exists():
        game = game_of(name, index)
        estimator = "regression" if name in IMAGE_GAMES else "antithetic"
        evaluations = REFERENCE_EVALUATIONS[name]
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


def ours(name: str, index: int, estimator: str, budget: int) -> Measured:
    """Run one of our estimators."""
    game = MeasuredGame(game_of(name, index))
    start = time.process_time()
    result = our_values(game, estimator, budget)
    overhead = time.process_time() - start - game.seconds
    return Measured(result.values, result.evaluations, game.seconds, overhead, f"perdure {version('perdure')}")


def captum_values(name: str, index: int, budget: int) -> Measured:
    """Run captum's ShapleyValueSampling, whole permutations."""
    from captum.attr import ShapleyValueSampling

    game = image_game(name, index * (1000 // 8))
    samples = max(1, budget // game.players)
    mask = torch.arange(game.players).reshape(1, 1, 32, 32).expand(1, 3, 32, 32).contiguous()
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


def shap_values(name: str, index: int, budget: int) -> Measured:
    """Run shap's PermutationExplainer, whole pairs of permutations."""
    import shap

    game = MeasuredGame(game_of(name, index))
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


def shapiq_values(name: str, index: int, approximator: str, budget: int, python: str, options: Any = None) -> Measured:
    """Run an approximator of shapiq in its own process; it may use 14 GiB of memory."""
    game = game_of(name, index)
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
                software = f"shapiq {message['shapiq']}"
                return Measured(message["values"], message["evaluations"], seconds, message["seconds"], software)
            width = -(-message["players"] // 8)
            packed = np.frombuffer(received.read(message["rows"] * width), dtype=np.uint8)
            rows = np.unpackbits(packed.reshape(-1, width), axis=1, count=message["players"]).astype(bool)
            start = time.process_time()
            values = np.asarray(game(rows), dtype="<f8")
            seconds += time.process_time() - start
            sent.write(values.tobytes())
            sent.flush()
    raise MemoryError("the process of shapiq ended without a result")


def measurements(arguments: argparse.Namespace) -> Iterator[tuple[dict[str, Any], Callable[[], Measured]]]:
    """Yield the settings of each measurement and the call that makes it."""
    for name in arguments.games:
        budgets = [budget for budget in arguments.budgets if name in IMAGE_GAMES or budget < 10**5]
        for index in range(arguments.images):
            for budget in budgets:
                for estimator in arguments.estimators:
                    key = {"game": name, "index": index, "estimator": estimator, "budget": budget}
                    call = measurement(name, index, estimator, budget, arguments.shapiq_python)
                    if call is not None:
                        yield key, call


def measurement(
    name: str, index: int, estimator: str, budget: int, python: str | None
) -> Callable[[], Measured] | None:
    """Return the call that makes a measurement; None for estimators that this game or installation does not have."""
    if estimator in OURS:
        return partial(ours, name, index, estimator, budget)
    if estimator == "captum":
        return partial(captum_values, name, index, budget) if name in IMAGE_GAMES else None
    if estimator == "shap":
        return partial(shap_values, name, index, budget)
    if python is None:
        return None
    kind, _, factor = estimator.partition("/")
    return partial(
        shapiq_values, name, index, kind, budget, python, {"interaction_factor": int(factor)} if factor else {}
    )


def measure(key: dict[str, Any], call: Callable[[], Measured]) -> dict[str, Any]:
    """Return a row: the settings with error, evaluations and CPU seconds, or the reason why there is no result."""
    exact, noise = reference(key["game"], key["index"])
    square = float(exact @ exact) - noise
    try:
        result = call()
    except (MemoryError, InputError) as failure:
        return {**key, "failed": str(failure)[:200]}
    error = max(float(np.square(result.values - exact).sum()) - noise, 0.0)
    return {
        **key,
        "error": float(np.sqrt(error / square)),
        "evaluations": result.evaluations,
        "evaluation_seconds": round(result.seconds, 4),
        "overhead_seconds": round(result.overhead, 4),
        "software": result.software,
        "date": datetime.now(tz=UTC).date().isoformat(),
    }


def read_rows(file: Path) -> list[dict[str, Any]]:
    """Return the finished measurements."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


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


def checkpoints(count: int, budgets: list[int]) -> None:
    """Print errors on LeNet after one more epoch, with and without the values of the earlier checkpoint as ``prior``."""
    earlier = trained("lenet")
    later = copy.deepcopy(earlier).train()
    train, labels_of_train, test, labels = images()
    optimizer = torch.optim.SGD(later.parameters(), lr=0.02, momentum=0.9)
    for rows in torch.split(torch.randperm(len(train), generator=torch.Generator().manual_seed(1)), 64):
        optimizer.zero_grad()
        loss: Any = torch.nn.functional.cross_entropy(later(train[rows]), labels_of_train[rows])
        loss.backward()
        optimizer.step()
    for budget in budgets:
        errors: dict[str, list[float]] = {"change": [], "values": [], "gradients": [], "prior": []}
        for index in range(0, 1000, 1000 // count):
            games = []
            for net in (earlier, later):
                frozen = net.eval().requires_grad_(False)
                players = pixel_players(tuple(test[index].shape))
                arguments = (test[index], int(labels[index]), players, train.mean(0))
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


def main() -> None:
    """Make the measurements that are missing and print one line for each; or show those that were made."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--games", nargs="+", default=[*IMAGE_GAMES, *TABLE_GAMES], choices=[*IMAGE_GAMES, *TABLE_GAMES]
    )
    parser.add_argument("--images", type=int, default=2, help="examples per game, at most 8")
    parser.add_argument("--budgets", type=int, nargs="+", default=[2_000, 10_000])
    parser.add_argument("--estimators", nargs="+", default=[*OURS, "captum", "shap", *SHAPIQ])
    parser.add_argument("--shapiq-python", help="Python of an environment with shapiq 1.8 and lightgbm")
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
    if arguments.checkpoints:
        checkpoints(arguments.images, arguments.budgets)
        return
    for key, call in measurements(arguments):
        if any(same(row, key) for file in arguments.rows for row in read_rows(file)):
            continue
        row = measure(key, call)
        with arguments.rows[0].open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
