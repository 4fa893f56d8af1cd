"""The command line: parse, call, print. Heavy packages are imported inside the commands, so that --help is fast."""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable

import typer

from perdure import __version__
from perdure.base.errors import InputError
from perdure.cli.audit import audit
from perdure.cli.demo import demo
from perdure.cli.explain import explain
from perdure.cli.fit import fit
from perdure.cli.report import report
from perdure.cli.reproduce import reproduce
from perdure.cli.run import run
from perdure.cli.score import score
from perdure.cli.trust.bias import bias
from perdure.cli.trust.retraining import retraining

DESCRIPTION = "Is our continual learner reliable? Train, record, audit and report."
COMMANDS: dict[Callable[..., None], str] = {
    demo: "perdure demo --out demo",
    run: "perdure run naive ewc rehearsal --benchmark split-digits --seeds 3",
    audit: "perdure audit runs/ --shapc --examples 16",
    score: "perdure score ewc_seed0.csv ewc_seed1.csv naive.csv --percent",
    fit: "perdure fit runs/split-digits --predict 3,2,1",
    explain: "perdure explain runs/split-digits/naive/seed-0 --method lrp --option epsilon=1e-6",
    report: "perdure report runs/ --out report.html",
    reproduce: "perdure reproduce shapc --only memory-small-conv",
}
TRUST_COMMANDS: dict[Callable[..., None], str] = {
    bias: "perdure trust bias runs/split-digits/ewc/seed-0 --examples 20",
    retraining: "perdure trust retraining runs/split-digits/ewc/seed-0 --method grad --method lrp",
}
"""Each command with the example at the end of its help."""
# A full disk, a quota or a read-only folder: the user can fix these, they are not errors of the program.
_USER_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EPERM)

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


@app.callback(epilog="Example: perdure demo, then open demo/report.html")
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Is our continual learner reliable? Train, record, audit and report."""


def _guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Turn errors that a user can fix into one line on standard error and an exit code."""

    @functools.wraps(command)
    def guarded(*args: object, **kwargs: object) -> None:
        try:
            command(*args, **kwargs)
        except InputError as error:
            _exit(str(error), 2)
        except KeyboardInterrupt:
            _exit("interrupted. Finished work is saved; run the same command again to resume", 130)
        except OSError as error:
            if error.errno not in _USER_ERRORS:
                raise
            file = f"{error.filename}: " if error.filename else ""
            _exit(f"{file}{error.strerror}. Saved files are intact; run the same command again to resume", 1)

    return guarded


def _exit(message: str, code: int) -> None:
    typer.echo(f"perdure: {message}", err=True)
    raise typer.Exit(code)


for _command, _example in TRUST_COMMANDS.items():
    trust.command(epilog=f"Example: {_example}")(_guarded(_command))
for _command, _example in COMMANDS.items():
    if _command is report:
        app.add_typer(trust)
    app.command(epilog=f"Example: {_example}")(_guarded(_command))


def main() -> None:
    """Run the requested command."""
    app()
