"""The command line: parse, call, print. Heavy rooms are imported inside the commands, so that --help is quick."""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable

import typer

from perdure import __version__
from perdure.base.errors import InputError
from perdure.cli.audit import audit, report
from perdure.cli.demo import demo
from perdure.cli.explain import explain
from perdure.cli.fit import fit
from perdure.cli.reproduce import reproduce
from perdure.cli.run import run
from perdure.cli.score import score
from perdure.cli.trust.command import trust

# A full disk, a quota, or a place where nothing may be written: the user's to mend, not a fault of the program.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EPERM)

app = typer.Typer(
    name="perdure",
    help="Is our continual learner reliable? Train, record, audit and report.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"perdure {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Is our continual learner reliable? Train, record, audit and report."""


def _guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Turn what a user can mend into one line on standard error and an exit code, never a traceback."""

    @functools.wraps(command)
    def guarded(*args: object, **kwargs: object) -> None:
        try:
            command(*args, **kwargs)
        except InputError as error:
            _stop(str(error), 2)
        except KeyboardInterrupt:
            _stop("stopped; what was finished is kept, and the same command goes on with the rest", 130)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            place = f"{error.filename}: " if error.filename else ""
            _stop(f"{place}{error.strerror}; what was written is whole, and the same command goes on afterwards", 1)

    return guarded


def _stop(message: str, code: int) -> None:
    typer.echo(f"perdure: {message}", err=True)
    raise typer.Exit(code)


for _command in (demo, run, audit, score, fit, explain, trust, report, reproduce):
    app.command()(_guarded(_command))


def main() -> None:
    """Run the command that was asked for."""
    app()
