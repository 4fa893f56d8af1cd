"""Opening a record executes nothing: names of code in its fields are data, and pickles next to its files are not read."""

import json
import pickle
import sys

import pytest

from perdure.cli import main

FORBIDDEN = {"pickle.find_class", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork"}
_events: list[tuple[str, str]] = []
_watching: list[bool] = []
_installed: list[bool] = []


def _record_event(event: str, arguments: tuple[object, ...]) -> None:
    if _watching and (event in FORBIDDEN or (event in ("import", "exec") and "evil" in str(arguments))):
        _events.append((event, str(arguments)))


@pytest.fixture
def executed():
    """Return the list of the events by which code is executed, while the test runs; an audit hook cannot be removed."""
    if not _installed:
        sys.addaudithook(_record_event)
        _installed.append(True)
    _events.clear()
    _watching.append(True)
    yield _events
    _watching.clear()


class Evil:
    """An object whose pickle imports a module that leaves a mark."""

    def __reduce__(self):
        return __import__, ("evil",)


@pytest.fixture
def record(perdure, tmp_path, monkeypatch):
    """Return a trained record with code next to it."""
    perdure("run", "naive", "--epochs", 1, "--per-class", 4, "--tasks", 2)
    folder = tmp_path / "runs/split-digits/naive/seed-0"
    (tmp_path / "evil.py").write_text("open('mark', 'w').close()\ndef make(*_): open('mark', 'w').close()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in (
        "model.pkl",
        "state.pkl",
        "state.pt",
        "checkpoints/after-01.pt",
        "checkpoints/after-02.pkl",
        "evil.npy",
    ):
        (folder / name).write_bytes(pickle.dumps(Evil()))
    for name in ("__init__.py", "conftest.py", "evil.py", "checkpoints/__init__.py"):
        (folder / name).write_text((tmp_path / "evil.py").read_text())
    return folder


def test_the_mark_would_be_noticed(record, tmp_path, executed):
    pickle.loads((record / "model.pkl").read_bytes())
    assert (tmp_path / "mark").exists()
    assert {event for event, _ in executed} >= {"pickle.find_class", "import"}
    sys.modules.pop("evil", None)


def run_everything(monkeypatch, record, codes):
    """Run every command that opens a record and check the exit codes."""
    runs = record.parents[2]
    small = ("--samples", 2, "--background", 2)
    retraining = ("trust", "retraining", record, "--examples", 2, "--method", "grad", *small)
    for command in (
        ("audit", runs),
        ("audit", runs, "--shapc", "--examples", 2, "--untrained", 2, *small),
        ("report", runs),
        ("fit", runs, "--starts", 2),
        ("explain", record, "--method", "grad", "--examples", "1"),
        ("score", record / "accuracy.csv"),
        ("trust", "bias", record, "--method", "grad", "--examples", 2, "--permutations", 20, *small),
        (*retraining, "--folds", 0),
        (*retraining, "--folds", 2, "--workers", 1),
    ):
        monkeypatch.setattr(sys, "argv", ["perdure", *map(str, command)])
        with pytest.raises(SystemExit) as stop:
            main()
        assert (stop.value.code or 0) in codes, command


def test_files_next_to_a_record_are_not_executed(monkeypatch, record, tmp_path, executed):
    run_everything(monkeypatch, record, (0,))
    assert executed == []
    assert not (tmp_path / "mark").exists()
    assert "evil" not in sys.modules


@pytest.mark.parametrize(("code", "with_data"), [("evil.make", True), ("evil.py:make", False)])
def test_fields_that_name_code_are_data(perdure, monkeypatch, record, tmp_path, code, with_data, executed):
    manifest = json.loads((record / "record.json").read_text())
    manifest["network"] = {"name": code, "width": None, "module": "evil", "function": "make"}
    manifest["settings"] |= {"optimizer": code, "network": code, "callback": code, "module": "evil"}
    manifest["provenance"] |= {"data": code, "transform": code} | ({"source": code} if with_data else {})
    manifest |= {"learner": code} | ({"benchmark": code} if with_data else {})
    manifest.pop("digests", None)  # as in a record of an earlier version, so that it opens
    (record / "record.json").write_text(json.dumps(manifest))
    for digests in record.glob("digests*"):
        digests.unlink()
    assert code in perdure("audit", record.parents[2]).stdout
    run_everything(monkeypatch, record, (0, 1, 2))
    assert executed == []
    assert not (tmp_path / "mark").exists()
    assert "evil" not in sys.modules


@pytest.mark.parametrize(
    ("command", "options"),
    [("run", 1), ("audit", 2), ("trust bias", 2), ("trust retraining", 2), ("explain", 2)],
)
def test_the_help_says_that_a_file_is_executed(perdure, monkeypatch, command, options):
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("TERMINAL_WIDTH", "300")
    text = " ".join(perdure(*command.split(), "--help").stdout.replace("│", " ").split())
    assert text.count("The file is executed: use only code that you trust.") == options
