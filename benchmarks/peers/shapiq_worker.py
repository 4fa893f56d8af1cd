"""Run shapiq in its own environment: shapiq 1.8 needs Python 3.12 and no torch.

`benchmarks/estimators.py` starts this file with another Python and evaluates the coalitions that it asks for. One JSON line on
standard input describes a job; frames on standard output are ``E rows players`` and packed coalitions (answered by rows * 8
bytes of float64 values), and finally ``R`` with one JSON line: Shapley values, evaluations and the CPU seconds spent here, that
is, without the evaluations.
"""

import json
import sys
import time
import warnings
from importlib.metadata import version
from typing import Any

import numpy as np

warnings.simplefilter("ignore")


class RemoteGame:
    """A game that is evaluated by the process at the other end of the pipes."""

    def __init__(self) -> None:
        self.evaluations = 0

    def __call__(self, coalitions: Any) -> Any:
        """Return the values of coalitions, one per row."""
        rows = np.atleast_2d(np.ascontiguousarray(coalitions, dtype=bool))
        self.evaluations += len(rows)
        header = json.dumps({"kind": "evaluate", "rows": len(rows), "players": rows.shape[1]})
        sys.stdout.buffer.write(header.encode() + b"\n" + np.packbits(rows, axis=1).tobytes())
        sys.stdout.buffer.flush()
        wanted = len(rows) * 8
        return np.frombuffer(sys.stdin.buffer.read(wanted), dtype="<f8").copy()


def approximator(job: dict[str, Any]) -> Any:
    """Return the approximator that a job names."""
    import shapiq.approximator as peers

    options = {"random_state": job["seed"], **job.get("options", {})}
    if job["approximator"] in {"RegressionMSR", "ProxySHAP"}:
        options["index"] = "SV"
    return getattr(peers, job["approximator"])(job["players"], **options)


def main() -> None:
    """Answer jobs until standard input ends."""
    while line := sys.stdin.buffer.readline():
        job = json.loads(line)
        game = RemoteGame()
        result: dict[str, Any] = {"kind": "result", "shapiq": version("shapiq")}
        try:
            start = time.process_time()
            estimate = approximator(job).approximate(job["budget"], game)
            result["seconds"] = time.process_time() - start
            values = [float(estimate[(player,)]) for player in range(job["players"])]
            result |= {"values": values, "evaluations": game.evaluations}
        except (MemoryError, ValueError, RuntimeError) as error:
            result["error"] = f"{type(error).__name__}: {error}"
        sys.stdout.buffer.write(json.dumps(result).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
