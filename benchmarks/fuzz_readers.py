"""Fuzz every reader of files with mutated files, and print the figures of each reader.

A file that makes a reader raise anything but an `InputError`, hang, use more than 500 MB or execute something is saved, and its
path is printed with the reader, the seed and the number of the file. Exit code 1 if there is one.

    python benchmarks/fuzz_readers.py [--files 2000] [--readers NAME ...] [--seed 0] [--first 0] [--out fuzz]
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.fuzz.readers import READERS
from tests.fuzz.runner import Outcome, fuzz


def print_outcome(outcome: Outcome) -> None:
    """Print the figures of one reader."""
    print(
        f"{outcome.reader:20} {outcome.files:7d} {outcome.refused:7d} {len(outcome.failures):6d}"
        f" {1000 * outcome.slowest:6.0f} ms {outcome.peak / 2**20:6.1f} MB {outcome.seconds:5.1f} s",
        flush=True,
    )


def main() -> int:
    """Fuzz the readers and print one line for each."""
    names = [reader.name for reader in READERS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--readers", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="Number of the first mutated file.")
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    folder = arguments.out or Path(tempfile.mkdtemp(prefix="perdure-fuzz-"))
    start = time.perf_counter()
    print(f"{'reader':20} {'files':>7} {'refused':>7} {'failed':>6} {'slowest':>9} {'memory':>9} {'CPU':>7}")
    outcomes = fuzz(arguments.readers, arguments.files, arguments.seed, folder, arguments.first, print_outcome)
    files, failures = (
        sum(outcome.files for outcome in outcomes),
        [item for outcome in outcomes for item in outcome.failures],
    )
    print(f"{files} files, {len(failures)} failures, {time.perf_counter() - start:.0f} s")
    for failure in failures:
        print(f"\n{failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
