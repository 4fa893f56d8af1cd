"""Time of `import perdure` and `perdure --help` against `import avalanche`, in fresh processes, interleaved.

Avalanche is not a dependency: install avalanche-lib in the same environment to include it. If its import fails (it needs
torchvision), the time until the failure is a lower bound of its import time and is marked as such.
"""

import subprocess
import sys
import time

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


def main() -> None:
    """Interleave the commands and print the medians and ratios."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    succeeded = dict.fromkeys(COMMANDS, True)
    for _ in range(REPEATS):
        for name, code in COMMANDS.items():
            elapsed, success = seconds(code)
            times[name].append(elapsed)
            succeeded[name] &= success
    median = {name: sorted(values)[REPEATS // 2] for name, values in times.items()}
    for name, value in median.items():
        print(f"{name:18} {value:6.2f} s{'' if succeeded[name] else '  (fails to import)'}")
    for ours in ("import perdure", "perdure --help"):
        for peer in ("import torch", "import avalanche"):
            print(f"{ours} / {peer}: {median[ours] / median[peer]:.3f}")


if __name__ == "__main__":
    main()
