"""The command line: parse, call, print. Heavy rooms are imported inside the commands, so that --help is quick."""

from __future__ import annotations

import errno
import sys

import click
import typer

from perdure import __version__
from perdure.cli.audit import audit, report
from perdure.cli.demo import demo
from perdure.cli.run import run
from perdure.cli.score import score
from perdure.errors import InputError

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


for _command in (demo, run, audit, score, report):
    app.command()(_command)


def main() -> None:
    """Run a command; bad input ends with one line and exit code 2, never with a traceback."""
    try:
        code = app(standalone_mode=False)
    except InputError as error:
        _stop(str(error), 2)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (KeyboardInterrupt, click.Abort):
        _stop("stopped; what was finished is kept, and the same command goes on with the rest", 130)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EPERM):
            raise
        place = f"{error.filename}: " if error.filename else ""
        _stop(
            f"{place}{error.strerror}; nothing already written is damaged, and the same command goes on afterwards", 1
        )
    sys.exit(code if isinstance(code, int) else 0)


def _stop(message: str, code: int) -> None:
    typer.echo(f"perdure: {message}", err=True)
    sys.exit(code)
