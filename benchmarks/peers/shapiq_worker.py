"""Run shapiq in its own environment: shapiq 1.8 needs Python 3.12 and no torch.

`benchmarks/estimators.py` starts this file with another Python and evaluates the coalitions that it asks for. One JSON line on
standard input describes a job. On standard output, each request for values is one JSON line and packed coalitions (answered by
rows * 8 bytes of float64 values). The last line is the result: Shapley values, evaluations and the CPU seconds spent here, that
is, without the evaluations. Imports are not part of them: the approximator first runs on a small game. Anything that libraries
print goes to standard error. `benchmarks/explain_speed.py` starts this file for exact values of a game that is computed here.
"""

import json
import os
import sys
import time
import warnings
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

warnings.simplefilter("ignore")
SMALL_PLAYERS, SMALL_BUDGET = 30, 400


class RemoteGame:
    """A game that is evaluated by the process at the other end of the pipes."""

    def __init__(self, output: Any) -> None:
        self.output, self.evaluations = output, 0

    def __call__(self, coalitions: Any) -> Any:
        """Return the values of coalitions, one per row."""
        rows = np.atleast_2d(np.ascontiguousarray(coalitions, dtype=bool))
        self.evaluations += len(rows)
        header = json.dumps({"kind": "evaluate", "rows": len(rows), "players": rows.shape[1]})
        self.output.write(header.encode() + b"\n" + np.packbits(rows, axis=1).tobytes())
        self.output.flush()
        wanted = len(rows) * 8
        return np.frombuffer(sys.stdin.buffer.read(wanted), dtype="<f8").copy()


def small_game(coalitions: Any) -> Any:
    """Return the values of a game that is computed here."""
    rows = np.atleast_2d(np.asarray(coalitions, dtype=float))
    return np.sin(rows @ np.linspace(-1, 1, rows.shape[1]))


def approximator(job: dict[str, Any], players: int) -> Any:
    """Return the approximator that a job names."""
    import shapiq.approximator as peers

    options = {"random_state": job["seed"], **job.get("options", {})}
    if job["approximator"] in {"RegressionMSR", "ProxySHAP"}:
        options["index"] = "SV"
    return getattr(peers, job["approximator"])(players, **options)


def software() -> str:
    """Return the versions of shapiq and of the libraries of trees that some approximators use."""
    versions = []
    for package in ("shapiq", "lightgbm", "xgboost", "xgboost-cpu"):
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(versions)


def approximate(job: dict[str, Any], output: Any) -> dict[str, Any]:
    """Return Shapley values of the game at the other end of the pipes, or why there are none."""
    game = RemoteGame(output)
    try:
        approximator(job, SMALL_PLAYERS).approximate(SMALL_BUDGET, small_game)
        start = time.process_time()
        estimate = approximator(job, job["players"]).approximate(job["budget"], game)
        seconds = time.process_time() - start
    except (AttributeError, ImportError, MemoryError, ValueError, RuntimeError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    values = [float(estimate[(player,)]) for player in range(job["players"])]
    return {"values": values, "evaluations": game.evaluations, "seconds": seconds}


def exact(job: dict[str, Any]) -> dict[str, Any]:
    """Return exact values and interactions of the game sin(sum of weights), with CPU seconds without and with interactions."""
    from shapiq.game_theory.exact import ExactComputer

    weights, players = np.array(job["exact"]), job["players"]

    def game(rows: Any) -> Any:
        return np.sin(np.asarray(rows, dtype=np.float64) @ weights)

    small = ExactComputer(small_game, 4)
    small("SV")
    small("Moebius")
    start = time.process_time()
    values = ExactComputer(game, players)("SV")
    seconds = time.process_time() - start
    start = time.process_time()
    computer = ExactComputer(game, players)
    computer("SV")
    moebius = computer("Moebius")
    both_seconds = time.process_time() - start
    return {
        "values": [float(values[(player,)]) for player in range(players)],
        "moebius": [[list(coalition), float(moebius[coalition])] for coalition in moebius.interaction_lookup],
        "values_seconds": max(seconds, 1e-6),
        "both_seconds": max(both_seconds, 1e-6),
    }


def main() -> None:
    """Answer jobs until standard input ends."""
    # Libraries in C print to the standard output as well, which would be read as a message.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as output:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        while line := sys.stdin.buffer.readline():
            job = json.loads(line)
            result = exact(job) if "exact" in job else approximate(job, output)
            message = {"kind": "result", "software": software(), **result}
            output.write(json.dumps(message).encode() + b"\n")
            output.flush()


if __name__ == "__main__":
    main()
