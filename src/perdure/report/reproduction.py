"""The script that reproduces a report: it trains, measures and audits again, and compares the audit with the original one.

Names and paths are data: in commands they are quoted, in comments control characters are escaped.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from perdure.audits import Audit, RunProvenance
from perdure.audits.fingerprint import format_fingerprints
from perdure.audits.results import PYTHON_OBJECT, Origin
from perdure.base.errors import escape_control_characters
from perdure.report.measurement_commands import Command, device_words, option, trust_commands, weight_text

_HEADER = """\
#!/usr/bin/env bash
# Reproduces a report of perdure: it {steps}, and compares the result with the original.
# Usage: bash reproduce.sh [FOLDER]
# FOLDER (default: reproduced) is where everything is written. Run the script again to resume.
# The exit code is 0 if the new audit is identical to the original one, and 1 if it differs.
#
# Environment variables:
#   PERDURE_ANY_VERSION=1   run with another version of perdure than the original
#   PERDURE_EXPECT=FILE     the original audit.json; the script then lists the values that differ
#   PERDURE_DATA=FOLDER     where the files of benchmarks are; missing files are downloaded to it
"""
_FUNCTIONS = """\
set -euo pipefail

out=${1:-reproduced}
case $out in -*) out=./$out ;; esac

stop() {
  printf 'reproduce.sh: %s\\n' "$1" >&2
  exit 2
}
"""
_VERSION_CHECK = """\
installed=$(perdure --version) || stop "perdure is not installed"
if [ "$installed" != "perdure $perdure_version" ] && [ -z "${PERDURE_ANY_VERSION:-}" ]; then
  stop "the report was made with perdure $perdure_version, but $installed is installed. \\
Install that version, or set PERDURE_ANY_VERSION=1."
fi
"""
_TORCH_CHECK = """\
torch_installed=$(perdure --versions | sed -n 's/^torch //p') || torch_installed=unknown
if [ "$torch_installed" != "$torch_version" ]; then
  printf 'reproduce.sh: warning: the report was made with torch %s, installed is %s. Results can differ.\\n' \\
    "$torch_version" "$torch_installed" >&2
fi
"""
_VERIFY = """\
sha256() {
  if command -v sha256sum > /dev/null; then sha256sum < "$1"; else shasum -a 256 < "$1"; fi | cut -d ' ' -f 1
}

verify() {
  [ -f "$1" ] || stop "$1: no such file. $3 names another place."
  if [ "$(sha256 "$1")" != "$2" ]; then
    printf 'reproduce.sh: %s: the file differs from that of the original audit (SHA-256 %s).\\n' "$1" "$2" >&2
    exit 1
  fi
}
"""
_AUDIT = """\
mkdir -p "$out"
rm -f "$out"/audit.json
status=0
{command} || status=$?
[ -f "$out"/audit.json ] || exit "$status"
perdure report --out "$out"/report.html -- "$out"/audit.json
exit "$status"
"""
_SCORE = """\
mkdir -p "$out"
{command}
"""
_UNKNOWN = """\
stop "the numbers of this report come from neither records nor files, so no command can compute them again."
"""
_FLAGS = ("clamp", "renormalise", "count_teachers", "keep_maps", "retrain_reference", "percent", "losses")
_VALUES = ("ce_epsilon", "examples", "precision", "metric", "group", "layout", "lifetime_bits", "as")
_SHAPC_VALUES = (
    "method",
    "samples",
    "top",
    "score",
    "head",
    "background",
    "untrained",
    "untrained_samples",
    "variant",
    "layer",
    "seed",
    "batch_size",
)
_SHARES = [0.1, 0.3, 0.5]


@dataclass(frozen=True)
class _Batch:
    """Runs that one ``perdure run`` command trains into a folder of their own."""

    learner: str
    options: tuple[tuple[str, str], ...]
    runs: tuple[RunProvenance, ...]
    folder: str

    @property
    def seeds(self) -> list[int]:
        return [run.seed or 0 for run in self.runs]

    def command(self) -> Command:
        """Return the command; learners come after ``--``, so that none is read as an option."""
        seeds = self.seeds
        counted = sorted(seeds) == list(range(len(seeds)))
        chosen = option("seeds", len(seeds)) if counted else [word for seed in seeds for word in option("seed", seed)]
        words = [word for name, value in self.options for word in (shlex.quote(name), shlex.quote(value))]
        return Command("run", [*words, *chosen, "--out", self.folder], [shlex.quote(self.learner)])

    def record(self, run: RunProvenance) -> str:
        """Return the path of a run's record: perdure run makes a folder for the benchmark and one for the learner."""
        return f"{self.folder}/*/*/seed-{run.seed}"


@dataclass(frozen=True)
class _Input:
    """A file or folder that the script reads: a variable with its path, which an environment variable replaces."""

    variable: str
    path: str
    files: Mapping[str, str]

    @property
    def word(self) -> str:
        return f'"${self.variable}"'

    def lines(self) -> list[str]:
        name = self.variable.upper()
        lines = [f"{self.variable}={shlex.quote(self.path)}", f"{self.variable}=${{{name}:-${self.variable}}}"]
        return lines + [
            f"verify {self._file(file)} {shlex.quote(digest)} {name}" for file, digest in self.files.items()
        ]

    def _file(self, file: str) -> str:
        if PurePath(file) == PurePath(self.path):
            return self.word
        return f"{self.word}/{shlex.quote(PurePath(file).relative_to(self.path).as_posix())}"


def reproduction_script(audit: Audit) -> str:
    """Return a bash script that trains, measures and audits again, and compares the result with the audit.

    Runs of ``perdure run`` are trained again, and their measurements with ``perdure trust`` repeated. Records of other
    training loops, unfinished records and results of other frameworks are read from where they were; their digests are
    verified.
    """
    origin = audit.origin or _origin_of_earlier_version(audit)
    batches = _batches(audit)
    repeated = {run.run for batch in batches for run in batch.runs}
    records = _existing_records(audit, origin, repeated)
    others = _imported_inputs(origin)
    header = _HEADER.replace("{steps}", reproduction_steps(audit))
    parts = [header + "#\n" + _described(audit, origin), _FUNCTIONS]
    if not (batches or records or others):
        return "\n".join([*parts, _UNKNOWN])
    parts += _version_checks(audit, origin)
    inputs = [*records, *others, *_cost_input(origin)]
    if any(entry.files for entry in inputs):
        parts.append(_VERIFY)
    if inputs:
        what = (
            "# Files that are read. Set the variable in capital letters (RECORD_1, INPUT_1, ...) if a path has changed."
        )
        parts.append("\n".join([what, *(line for entry in inputs for line in entry.lines())]) + "\n")
    parts += [_training(batch) for batch in batches]
    parts += _measurements(audit, batches)
    paths = [batch.folder for batch in batches] + [entry.word for entry in (*records, *others)]
    if records and "shapc" in origin.options:  # records of a user's own loop can refer to code
        origin = replace(origin, options={**origin.options, "allow_code": True})
    parts.append(_comparison(audit, origin, paths))
    return "\n".join(parts)


def reproduction_steps(audit: Audit) -> str:
    """Return what the script does before it compares the results, as verbs: "trains 12 runs, ... and audits them"."""
    origin = audit.origin or _origin_of_earlier_version(audit)
    batches = _batches(audit)
    repeated = {run.run for batch in batches for run in batch.runs}
    steps = []
    if repeated:
        steps.append(f"trains {len(repeated)} run{'s' if len(repeated) != 1 else ''}")
    if any(findings.run in repeated for findings in audit.trust):
        steps.append("repeats the measurements of perdure trust")
    inputs = [*_existing_records(audit, origin, repeated), *_imported_inputs(origin)]
    if inputs:
        unchanged = " and verifies that they are unchanged" if any(entry.files for entry in inputs) else ""
        steps.append(f"reads the same {'files' if not repeated else 'files of the other runs'}{unchanged}")
    steps.append("scores them again" if origin.command == "score" else "audits them")
    return f"{', '.join(steps[:-1])}, and {steps[-1]}" if len(steps) > 1 else steps[0]


def _origin_of_earlier_version(audit: Audit) -> Origin:
    """Return what an audit without its options shows about them."""
    options: dict[str, Any] = {**audit.settings, "clamp": bool(audit.clamp)}
    if audit.shapc:
        settings = audit.shapc[0].settings
        options["shapc"] = {name: settings[name] for name in (*_SHAPC_VALUES, "target", "options") if name in settings}
    software = next((dict(run.software) for run in audit.provenance if run.software), {})
    return Origin("audit", options, software=software)


def _comment(text: str) -> str:
    """Return a line of a comment; control characters, line ends among them, are escaped."""
    return f"# {escape_control_characters(text)}".rstrip()


def _described(audit: Audit, origin: Origin) -> str:
    """Return versions, seeds and fingerprints as comments."""
    lines = [f"Fingerprint of the original audit: {audit.fingerprint}"]
    if audit.origin is None:
        lines.append("The audit was written by an earlier version, which did not store its options: defaults are used.")
    if origin.software:
        lines.append(f"Audited with {_versions(origin.software)}.")
    trained = dict.fromkeys(_versions(run.software) for run in audit.provenance if run.software)
    lines += [f"Trained with {software}." for software in trained]
    groups: dict[tuple[str, ...], list[str]] = {}
    for run in audit.provenance:
        known = [f"{name} {run.data[name]}" for name in ("data_sha256", "fingerprint") if name in run.data]
        groups.setdefault((run.learner, run.benchmark, ", ".join(known)), []).append(str(run.seed))
    for (learner, benchmark, digests), seeds in groups.items():
        name = f"{learner} on {benchmark}" if benchmark else learner
        lines.append(f"{name}, seeds {', '.join(seeds)}{f': {digests}' if digests else ''}")
    return "\n".join(map(_comment, lines)) + "\n"


def _versions(software: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in software.items())


def _version_checks(audit: Audit, origin: Origin) -> list[str]:
    checks = []
    if version := origin.software.get("perdure"):
        checks.append(f"perdure_version={shlex.quote(version)}\n{_VERSION_CHECK}")
    trained = next((run.software["torch"] for run in audit.provenance if "torch" in run.software), None)
    version = trained or (origin.software.get("torch") if audit.shapc else None)
    if version:
        checks.append(f"torch_version={shlex.quote(version)}\n{_TORCH_CHECK}")
    return checks


def _batches(audit: Audit) -> list[_Batch]:
    """Return the runs that can be trained again, in the order of the audit, divided so that every batch is one command.

    An audit reads records in the order of their paths. Numbered folders keep that order.
    """
    unfinished = {run for entry in audit.learners if not entry.complete for run in entry.runs}
    groups: list[tuple[str, tuple[tuple[str, str], ...], list[RunProvenance]]] = []
    for run in audit.provenance:
        parsed = None if run.run in unfinished else _parsed_command(run)
        if parsed is None:
            continue
        last = groups[-1] if groups else None
        if last is not None and last[:2] == parsed and f"seed-{last[2][-1].seed}" < f"seed-{run.seed}":
            last[2].append(run)
        else:
            groups.append((*parsed, [run]))
    digits = len(str(len(groups)))
    return [
        _Batch(learner, options, tuple(runs), f'"$out"/runs/{number:0{digits}d}')
        for number, (learner, options, runs) in enumerate(groups, start=1)
    ]


def _parsed_command(run: RunProvenance) -> tuple[str, tuple[tuple[str, str], ...]] | None:
    """Return the learner and the options of a run's command, without those that count seeds and class orders.

    The command comes from a file, so it is not used as it is: only the options of ``perdure run`` are taken from it.
    """
    try:
        program, command, learner, *words = shlex.split(run.command or "")
    except ValueError:
        return None
    pairs = list(zip(words[::2], words[1::2], strict=False))
    if (program, command) != ("perdure", "run") or len(words) % 2 or not isinstance(run.seed, int):
        return None
    if not all(name.startswith("--") and name.removeprefix("--").replace("-", "").isalpha() for name, _ in pairs):
        return None
    renamed = {"--orders": "--order"}  # only the recorded order is trained
    return learner, tuple((renamed.get(name, name), value) for name, value in pairs if name != "--seeds")


def _existing_records(audit: Audit, origin: Origin, repeated: set[str]) -> list[_Input]:
    """Return the records that cannot be trained again."""
    records: list[_Input] = []
    for run in audit.provenance:
        manifest = str(PurePath(run.run) / "record.json")
        if run.run in repeated or (audit.origin is not None and manifest not in origin.files):
            continue
        files = {file: digest for file, digest in origin.files.items() if PurePath(file).parent == PurePath(run.run)}
        records.append(_Input(f"record_{len(records) + 1}", run.run, files))
    return records


def _imported_inputs(origin: Origin) -> list[_Input]:
    inputs = []
    for number, path in enumerate(origin.imported, start=1):
        below = {file: digest for file, digest in origin.files.items() if PurePath(file).is_relative_to(path)}
        inputs.append(_Input(f"input_{number}", path, below))
    return inputs


def _cost_input(origin: Origin) -> list[_Input]:
    cost = origin.options.get("cost")
    if not isinstance(cost, str):
        return []
    return [_Input("cost", cost, {file: digest for file, digest in origin.files.items() if file == cost})]


def _training(batch: _Batch) -> str:
    """Return the command that trains some runs, with what the user must supply."""
    options = dict(batch.options)
    lines = [f"{batch.learner}: {len(batch.runs)} run{'s' if len(batch.runs) != 1 else ''}"]
    if ":" in options.get("--network", ""):
        lines.append(f"Needs {options['--network'].rpartition(':')[0]} in the current folder; the file is executed.")
    source = options.get("--benchmark", "")
    if "/" in source or "." in source:
        lines.append(f"Needs the data {source}; the comparison at the end verifies their fingerprint.")
    return "\n".join(map(_comment, lines)) + f"\n{batch.command()}\n"


def _measurements(audit: Audit, batches: Sequence[_Batch]) -> list[str]:
    """Return the commands that repeat the measurements of ``perdure trust``."""
    runs = {run.run: (run, batch.record(run)) for batch in batches for run in batch.runs}
    parts = []
    for findings in audit.trust:
        if findings.run in runs:
            run, record = runs[findings.run]
            parts += [
                "".join(f"{_comment(line)}\n" for line in notes) + f"{command}\n"
                for notes, command in trust_commands(findings, run, record)
            ]
        else:
            note = f"The results of perdure trust that are stored in {findings.run} are used as they are."
            parts.append(f"{_comment(note)}\n")
    return parts


def _comparison(audit: Audit, origin: Origin, paths: Sequence[str]) -> str:
    """Return the last part: audit or score, comparison and report."""
    words, notes = _option_words(origin.options)
    expected = [f"expected={shlex.quote(format_fingerprints(audit))}", "expected=${PERDURE_EXPECT:-$expected}"]
    if origin.command == "score":
        arguments = [*words, "--report", '"$out"/report.html', "--expect", '"$expected"']
        end = _SCORE.replace("{command}", str(Command("score", arguments, paths)))
    else:
        arguments = [*words, "--out", '"$out"/audit.json', "--expect", '"$expected"']
        end = _AUDIT.replace("{command}", str(Command("audit", arguments, paths, origin.threads)))
    return "\n".join([*map(_comment, notes), *expected, end])


def _option_words(options: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the options as words of a command line, quoted, and notes about those that have no such form."""
    words = [f"--{name.replace('_', '-')}" for name in _FLAGS if options.get(name)]
    words += [word for name in _VALUES for word in option(name, options.get(name))]
    words += [*device_words(options), *option("curriculum", options.get("curriculum"))]
    words += ["--cost", '"$cost"'] if options.get("cost") else []
    weights = options.get("weights")
    named = {weights: weights} if isinstance(weights, str) else weights or {}
    words += [word for name, vector in named.items() for word in option("weights", weight_text(name, vector))]
    shapc = options.get("shapc")
    if not isinstance(shapc, Mapping):
        return words, []
    words += ["--shapc", *(word for name in _SHAPC_VALUES for word in option(name, shapc.get(name)))]
    target = shapc.get("target")
    words += option("target", target + 1 if isinstance(target, int) else target)
    words += [word for name, value in shapc.get("options", {}).items() for word in option("option", f"{name}={value}")]
    notes = []
    if shapc.get("shares", _SHARES) != _SHARES:
        notes.append(f"The sensitivity table was computed for the shares {shapc['shares']}; this needs Python.")
    own, missing = _own_sources(options)
    words += own
    if options.get("allow_code"):
        words.append("${PERDURE_ALLOW_CODE:+--allow-code}")
        notes.append("If records refer to code, set PERDURE_ALLOW_CODE=1 to execute it; use only code that you trust.")
    return words, [*notes, *missing]


def _own_sources(options: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the options of a user's own network and data: known ones can be replaced, others must be supplied."""
    words, notes = [], []
    for name in ("network", "data"):
        source = options.get(name)
        if not source:
            continue
        variable = name.upper()
        if source == PYTHON_OBJECT:
            words += [f"--{name}", f'"${{{variable}:?file.py:function is needed}}"']
            notes.append(f"The {name} was an object in Python. Set {variable}=file.py:function, which returns it.")
        else:
            words += option(name, source)
            notes.append(f"Needs the {name} {source}; code is executed.")
    return words, notes
