"""Reliability: commands that are killed at random moments, and records in which random bytes are changed.

    python benchmarks/reliability.py [--kills 200] [--corruptions 200] [--seed 0] [--page docs/results/reliability.md]

Kills: each command runs once without interruption. Then it is started again in a copy of its inputs, killed (SIGKILL) at
random moments up to three times, and run to the end. All files that it writes must have the same bytes as those of the
uninterrupted command. Commands: perdure run with each learner, run --tune, audit --shapc, trust bias, trust retraining with
one and two workers, fit and report --figures.

Corruptions: a byte of a random file of an audited record is changed, removed or added. `perdure.audit` with SHAPC and
`Record.checkpoint` must then either give the same numbers, or raise an error that names a file of the record.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from perdure import Record, audit, learners
from perdure.audits import ShapcSettings
from perdure.base.errors import InputError
from perdure.base.files import write_atomically

SMALL = ("--per-class", "8", "--epochs", "2", "--width", "2", "--threads", "1", "--save-seconds", "0")
MOST_KILLS = 3
LEFT_OUT = {".lock", ".lock-holder"}


@dataclass
class Command:
    """A command, the folder of inputs that it starts with (None: empty), and how it went."""

    name: str
    arguments: tuple[str, ...]
    inputs: str | None = None
    seconds: float = 0.0
    expected: dict[str, bytes] = field(default_factory=dict)
    kills: int = 0
    trials: int = 0
    different: int = 0


def commands() -> list[Command]:
    """Return all commands; the record that the later ones need is the output of ``run naive``."""
    record = "runs/split-digits/naive/seed-0"
    trust = ("--threads", "1", "--method", "grad", "--method", "gradient_x_input")
    trained = [Command(f"run {name}", ("run", name, *SMALL)) for name in learners.names()]
    shapc = ("audit", "runs", "--shapc", "--examples", "4", "--samples", "4", "--untrained", "2", "--keep-maps")
    retraining = ("trust", "retraining", record, "--folds", "2", "--examples", "4", "--method", "grad", "--epochs", "1")
    return [
        *trained,
        Command("run --tune", ("run", "ewc", "--tune", "3", *SMALL)),
        Command("audit --shapc", shapc, "run naive"),
        Command("trust bias", ("trust", "bias", record, "--examples", "4", *trust[2:]), "run naive"),
        Command("trust retraining, one worker", (*retraining, "--workers", "1"), "run naive"),
        Command("trust retraining, two workers", (*retraining, "--workers", "2"), "run naive"),
        Command("fit", ("fit", "runs", "--starts", "16", "--bootstrap", "100", "--figure", "curves.svg"), "run naive"),
        Command("report --figures", ("report", "runs", "--figures", "figures", "--tables", "tables"), "audit --shapc"),
    ]


def contents(folder: Path) -> dict[str, bytes]:
    """Return the content of every file below a folder, except locks."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in LEFT_OUT)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def start(command: Command, folder: Path) -> subprocess.Popen[bytes]:
    """Start a command in a folder, in its own process group."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80"}
    return subprocess.Popen(
        [sys.executable, "-m", "perdure", *command.arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def finish(command: Command, folder: Path) -> None:
    """Run a command to the end."""
    process = start(command, folder)
    _, errors = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{command.name}: exit code {process.returncode}: {errors.decode()[-400:]}")


def prepare(folder: Path, command: Command, by_name: dict[str, Command]) -> None:
    """Create the folder of a trial with the inputs of its command."""
    folder.mkdir(parents=True)
    if command.inputs is not None:
        for name, content in by_name[command.inputs].expected.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)


def kill_commands(kills: int, rng: random.Random, work: Path) -> list[Command]:
    """Run every command without interruption, then kill random ones until the number of kills is reached."""
    everything = commands()
    by_name = {command.name: command for command in everything}
    for command in everything:
        folder = work / "whole" / command.name.replace(" ", "-")
        prepare(folder, command, by_name)
        begin = time.monotonic()
        finish(command, folder)
        command.seconds = time.monotonic() - begin
        command.expected = contents(folder)
    done, trial = 0, 0
    while done < kills:
        command = everything[trial % len(everything)]
        trial += 1
        folder = work / "killed"
        shutil.rmtree(folder, ignore_errors=True)
        prepare(folder, command, by_name)
        for _ in range(rng.randint(1, MOST_KILLS)):
            process = start(command, folder)
            try:
                process.wait(rng.uniform(0.1, 0.8) * command.seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                command.kills += 1
                done += 1
        finish(command, folder)
        command.trials += 1
        found = contents(folder)
        if found != command.expected:
            command.different += 1
            names = sorted(
                name for name in {*found, *command.expected} if found.get(name) != command.expected.get(name)
            )
            print(f"{command.name}, trial {trial}: other content in {', '.join(names[:5])}", flush=True)
        print(f"{done} kills, {trial} trials", end="\r", flush=True)
    return everything


def corrupted(content: bytes, rng: random.Random) -> bytes:
    """Return the content with a random byte changed, removed or added."""
    position = rng.randrange(max(len(content), 1))
    kind = rng.choice(("flip", "change", "remove", "add", "truncate"))
    if kind == "flip" and content:
        return content[:position] + bytes([content[position] ^ (1 << rng.randrange(8))]) + content[position + 1 :]
    if kind == "change" and content:
        return content[:position] + bytes([rng.randrange(256)]) + content[position + 1 :]
    if kind == "remove":
        return content[:position] + content[position + 1 :]
    if kind == "truncate":
        return content[:position]
    return content[:position] + bytes([rng.randrange(256)]) + content[position:]


def measured(folder: Path) -> str:
    """Return everything that is computed from a record, as text."""
    record = Record.open(folder)
    networks = {
        step: {name: tensor.flatten().tolist() for name, tensor in record.checkpoint(step).items()}
        for step in sorted(record.manifest.checkpoints)
    }
    result = audit(folder, shapc=ShapcSettings(samples=4, untrained=2), examples=4, keep_maps=True).to_json()
    return json.dumps([networks, result], sort_keys=True)


def corrupt_records(count: int, rng: random.Random, files: dict[str, bytes], work: Path) -> Counter[str]:
    """Corrupt one byte of a random file of a record at a time, and count the outcomes."""
    folder = work / "corrupted"
    outcomes: Counter[str] = Counter()
    warnings.simplefilter("error")  # a record without digests would be read with a warning only

    def write(names: dict[str, bytes]) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        for name, content in names.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)

    write(files)
    expected = measured(folder)
    complete = contents(folder)
    for number in range(count):
        name = rng.choice(sorted(complete))
        changed = corrupted(complete[name], rng)
        write({**complete, name: changed})
        try:
            outcome = "same numbers" if measured(folder) == expected else "other numbers"
        except InputError as error:
            outcome = "reported by name" if str(folder) in str(error) else "reported without a name"
        except Exception as error:  # noqa: BLE001  (anything else is a failure to report)
            outcome = f"{type(error).__name__}"
        if outcome in {"same numbers", "reported by name"}:
            outcomes[outcome if changed != complete[name] else "same numbers"] += 1
        else:
            outcomes[outcome] += 1
            print(f"corruption {number} of {name}: {outcome}", flush=True)
    return outcomes


def page(ran: list[Command], outcomes: Counter[str], seed: int) -> str:
    """Return the page of results in Markdown."""
    kills, trials = sum(command.kills for command in ran), sum(command.trials for command in ran)
    different = sum(command.different for command in ran)
    rows = [f"| {command.name} | {command.kills} | {command.trials} | {command.different} |" for command in ran]
    listed = [f"| {name} | {number} |" for name, number in outcomes.most_common()]
    lines = [
        "# Reliability",
        "",
        f"Created by `python benchmarks/reliability.py --seed {seed}`, which is part of `make soak`.",
        "",
        "## Killed commands",
        "",
        "Each command was killed with SIGKILL at random moments, up to three times in a row, and then run to the end. The",
        "files that it wrote were compared with those of an uninterrupted command.",
        "",
        f"**{kills} kills in {trials} trials; {different} trials ended with other bytes.**",
        "",
        "| command | kills | trials | other bytes |",
        "| --- | --- | --- | --- |",
        *rows,
        "",
        "## Corrupted records",
        "",
        f"A byte of a random file of an audited record was changed, removed or added, {sum(outcomes.values())} times. The",
        "record, its checkpoints and its SHAPC values were then read.",
        "",
        "| outcome | corruptions |",
        "| --- | --- |",
        *listed,
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    """Run both parts, print and write the figures, and return 1 if anything was lost or changed in silence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--corruptions", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        ran = kill_commands(options.kills, rng, Path(folder))
        audited = next(command for command in ran if command.name == "audit --shapc").expected
        inside = "runs/split-digits/naive/seed-0/"
        record = {name.removeprefix(inside): content for name, content in audited.items() if name.startswith(inside)}
        outcomes = corrupt_records(options.corruptions, rng, record, Path(folder))
    text = page(ran, outcomes, options.seed)
    print(text)
    if options.page:
        write_atomically(options.page, text.encode())
    good = {"same numbers", "reported by name"}
    return int(any(command.different for command in ran) or not set(outcomes) <= good)


if __name__ == "__main__":
    sys.exit(main())
