"""The command line: parse, call, print. Heavy packages are imported inside the commands, so that --help is fast."""

from __future__ import annotations

import errno
import functools
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import typer

from perdure import __version__
from perdure.base.errors import INTERRUPTED, STOP_SIGNALS, InputError, error_message
from perdure.cli.audit import audit
from perdure.cli.check import check
from perdure.cli.compare import compare
from perdure.cli.demo import demo
from perdure.cli.explain import explain
from perdure.cli.export import export
from perdure.cli.fit import fit
from perdure.cli.import_ import import_
from perdure.cli.options import LARGEST, LARGEST_FLOAT, MOST
from perdure.cli.output.names import escape_control_characters
from perdure.cli.report import report
from perdure.cli.reproduce import reproduce
from perdure.cli.run import run
from perdure.cli.score import score
from perdure.cli.status import status
from perdure.cli.trust.bias import bias
from perdure.cli.trust.retraining import retraining

DESCRIPTION = "Is our continual learner reliable? Train, record, audit and report."
COMMANDS: dict[Callable[..., None], str] = {
    demo: "perdure demo --out demo",
    run: "perdure run naive ewc rehearsal --benchmark split-digits --seeds 3",
    audit: "perdure audit runs/ --shapc --examples 16",
    score: "perdure score ewc_seed0.csv ewc_seed1.csv naive.csv --percent",
    import_: "perdure import csvlogs/eval_results.csv logs.pyd --out runs/imported",
    fit: "perdure fit runs/split-digits --predict 3,2,1",
    explain: "perdure explain runs/split-digits/naive/seed-0 --method lrp --option epsilon=1e-6",
    compare: "perdure compare runs/split-digits/ewc/seed-0 runs/split-digits/ewc/seed-1 --retrain 3",
    report: "perdure report runs/ --out report.html",
    export: "perdure export runs/ --to latex --out tables/",
    check: "perdure check runs/split-digits/ewc/seed-1 --policy policy.toml --baseline runs/split-digits/ewc/seed-0",
    reproduce: "perdure reproduce shapc --only split-cifar10",
    status: "perdure status runs/ --watch",
}
TRUST_COMMANDS: dict[Callable[..., None], str] = {
    bias: "perdure trust bias runs/split-digits/ewc/seed-0 --examples 20",
    retraining: "perdure trust retraining runs/split-digits/ewc/seed-0 --method grad --method lrp",
}
"""Each command with the example at the end of its help."""
# Paths that cannot exist: the argument is wrong. Other errors of the operating system are those of the environment.
_WRONG_PATHS = (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOENT)
# How torch and numpy say that an array does not fit into memory, or has more elements than an integer can count.
_MEMORY_MESSAGES = (
    "not enough memory",
    "out of memory",
    "allocate memory",
    "unable to allocate",
    "invalid buffer size",
    "storage size calculation overflowed",
    "integer multiplication overflow",
    "array is too big",
    "maximum allowed dimension",
    "can't start new thread",
    "failed to map segment",
)

app = typer.Typer(
    name="perdure",
    help=DESCRIPTION,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="Example: perdure demo, then open demo/report.html",
)
trust = typer.Typer(
    name="trust",
    help="Can the explanations be trusted (bias), and do they survive retraining (retraining)?",
    no_args_is_help=True,
    epilog="Example: perdure trust bias runs/split-digits/ewc/seed-0",
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"perdure {__version__}")
        raise typer.Exit


def _print_versions(requested: bool) -> None:
    if requested:
        from perdure.base.registry import software_versions

        for name, version in software_versions().items():
            typer.echo(f"{name} {version}")
        raise typer.Exit


@app.callback(epilog="Example: perdure demo, then open demo/report.html")
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
    versions: bool = typer.Option(
        False,
        "--versions",
        callback=_print_versions,
        is_eager=True,
        help="Print the versions of Python and of the packages that affect results, and exit.",
    ),
) -> None:
    """Is our continual learner reliable? Train, record, audit and report."""


def _guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Turn signals, and errors that a user can fix, into one line on standard error and an exit code."""

    @functools.wraps(command)
    def guarded(*args: object, **kwargs: object) -> None:
        with _stop_signals_raise() as received:
            try:
                _check_option_limits(kwargs)
                command(*args, **kwargs)
                sys.stdout.flush()
            except BaseException as error:
                if received or isinstance(error, KeyboardInterrupt):
                    exec("")  # noqa: S102  (resets CPython's flag of an unhandled interrupt, which exec sets: exit code -2)
                    _exit(INTERRUPTED, 128 + (received[0] if received else signal.SIGINT))
                message, code = _user_error(error)
                if not message:
                    raise
                _exit(message, code)

    return guarded


def _check_option_limits(options: Mapping[str, object]) -> None:
    """Refuse numbers that no machine can process, before anything is allocated, and numbers that are not finite."""
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        largest = LARGEST.get(name, MOST)
        if isinstance(value, int) and value > largest:
            shown = value if value < 10**20 else "(a number of more than 20 digits)"
            raise InputError(f"{option} {shown}: expected at most {largest}")
        if isinstance(value, int) and value < 0:
            raise InputError(f"{option}: expected at least 0")
        if isinstance(value, float) and not (math.isfinite(value) and abs(value) <= LARGEST_FLOAT):
            raise InputError(f"{option} {value}: expected a number between -{LARGEST_FLOAT} and {LARGEST_FLOAT}")


@contextmanager
def _stop_signals_raise() -> Iterator[list[int]]:
    """Raise KeyboardInterrupt at SIGINT, SIGTERM and SIGHUP, and yield the list of the signals that arrived.

    A signal that is ignored (nohup) stays ignored. If the exception is raised where Python discards exceptions (in
    ``__del__`` or a callback of a weak reference, as during imports), the signal is raised again.
    """
    received: list[int] = []

    def stop(number: int, _frame: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    def raise_again(discarded: Any) -> None:
        if received and isinstance(discarded.exc_value, KeyboardInterrupt):
            threading.Timer(0.01, _send_to_main_thread, (received[-1],)).start()  # after this hook, which discards too
        else:
            report_discarded(discarded)

    if threading.current_thread() is not threading.main_thread():
        yield received  # only the main thread can set handlers
        return
    numbers = [getattr(signal, name) for name in STOP_SIGNALS if hasattr(signal, name)]
    handlers = {number: signal.getsignal(number) for number in numbers}
    report_discarded = sys.unraisablehook
    sys.unraisablehook = raise_again
    try:
        for number, handler in handlers.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, stop)
        yield received
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        sys.unraisablehook = report_discarded


def _send_to_main_thread(number: int) -> None:
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, number)
    else:
        signal.raise_signal(number)


def _user_error(error: BaseException) -> tuple[str, int]:
    """Return the line to print for an error that the user can fix and the exit code, or an empty line for other errors."""
    text = error_message(error)
    if isinstance(error, InputError):
        return error.cli or str(error), 2
    if isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError | ValueError | ImportError)
        and any(message in str(error).lower() for message in _MEMORY_MESSAGES)
    ):
        return f"not enough memory ({text}). Pass smaller values, for example of --width or --batch-size", 1
    if isinstance(error, OSError) and error.errno != errno.EPIPE:
        file = f"{error.filename}: " if error.filename else ""
        reason = error.strerror or text
        if error.errno in _WRONG_PATHS:
            return f"{file}{reason}", 2
        return f"{file}{reason}. Saved files are intact; run the same command again to resume", 1
    return "", 1


def _exit(message: str, code: int) -> NoReturn:
    _print_error(message)
    _discard_unwritten_output()
    raise typer.Exit(code)


def _print_error(message: str) -> None:
    """Print an error on one line; names in it are data."""
    with suppress(OSError):  # the terminal is gone, or the disk to which errors are written is full
        typer.echo(f"perdure: {escape_control_characters(' '.join(message.splitlines()))}", err=True)


def print_warning(message: Warning | str, *_where: object, **_more: object) -> None:
    """Print a warning on one line, without the place in the code."""
    _print_error(f"warning: {message}")


def _discard_unwritten_output() -> None:
    """Prevent a second error at the end of the process if standard output cannot be written, as on a full disk."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


for _command, _example in TRUST_COMMANDS.items():
    trust.command(epilog=f"Example: {_example}")(_guarded(_command))
for _command, _example in COMMANDS.items():
    if _command is report:
        app.add_typer(trust)
    app.command(_command.__name__.rstrip("_"), epilog=f"Example: {_example}")(_guarded(_command))


def main() -> None:
    """Run the requested command and end the process with its exit code; wrong options are reported in one line."""
    try:
        code = app(standalone_mode=False)
    except typer.Abort:
        sys.exit(1)
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # the help is printed already
            sys.exit(2)
        if not hasattr(error, "format_message"):  # not an error of the command line's parser
            raise
        context = getattr(error, "ctx", None)
        hint = f" ({context.command_path} --help lists the options)" if context is not None else ""
        _print_error(f"{error.format_message().rstrip('.')}{hint}")
        sys.exit(getattr(error, "exit_code", 2))
    sys.exit(code if isinstance(code, int) else 0)
