"""Time of `import perdure` and `perdure --help` against `import avalanche`, in fresh processes, interleaved.

Avalanche is not a dependency: install avalanche-lib in the same environment to include it. If its import fails (it needs
torchvision), the time until the failure is a lower bound of its import time and is marked as such.

    python benchmarks/import_time.py
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from comparison import Benchmark, Comparison, NotMeasured, Options, Side, missing, our_side, package_version

REPEATS = 7
COMMANDS = {
    "import perdure": "import perdure",
    "perdure --help": "import sys; sys.argv = ['perdure', '--help']; from perdure.cli import main; main()",
    "import torch": "import torch",
    "import avalanche": "import avalanche.training",
}


def seconds(code: str) -> tuple[float, bool]:
    """Return the wall time of a new interpreter that runs the code, and whether it succeeded."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    return time.perf_counter() - start, done.returncode == 0


def measure(names: Sequence[str], repeats: int) -> tuple[dict[str, float], dict[str, bool]]:
    """Return the median time of each command, and whether it succeeded; the commands take turns."""
    times: dict[str, list[float]] = {name: [] for name in names}
    succeeded = dict.fromkeys(names, True)
    for _ in range(repeats):
        for name in names:
            elapsed, success = seconds(COMMANDS[name])
            times[name].append(elapsed)
            succeeded[name] &= success
    return {name: sorted(values)[repeats // 2] for name, values in times.items()}, succeeded


def import_benchmark(options: Options) -> Iterator[Comparison | NotMeasured]:
    """Yield the comparison with avalanche."""
    if reason := missing("avalanche"):
        yield NotMeasured("import of the library", "avalanche", reason)
        return
    median, succeeded = measure(("import perdure", "import avalanche"), 1 if options.smoke else REPEATS)
    complete = succeeded["import avalanche"]
    yield Comparison(
        "import of the library",
        "wall seconds",
        our_side("`import perdure`", median["import perdure"], seconds=median["import perdure"]),
        Side(
            "`import avalanche.training`",
            package_version("avalanche-lib"),
            median["import avalanche"],
            seconds=median["import avalanche"],
        ),
        bound="" if complete else "at least",
        note="" if complete else "the import of avalanche fails here; its time is that until the failure",
    )


BENCHMARKS = (
    Benchmark(
        "import-time",
        "Import",
        "Medians of seven new processes each, which take turns. perdure imports torch when it is first needed.",
        import_benchmark,
    ),
)


def main() -> None:
    """Interleave the commands and print the medians and ratios."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    median, succeeded = measure(tuple(COMMANDS), REPEATS)
    for name, value in median.items():
        print(f"{name:18} {value:6.2f} s{'' if succeeded[name] else '  (fails to import)'}")
    for ours in ("import perdure", "perdure --help"):
        for peer in ("import torch", "import avalanche"):
            print(f"{ours} / {peer}: {median[ours] / median[peer]:.3f}")


if __name__ == "__main__":
    main()
