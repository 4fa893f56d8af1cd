"""Starts the command line, for ``python -m perdure`` and for the console script."""

from __future__ import annotations

import os
import signal
import warnings
from contextlib import suppress

from perdure.base.errors import INTERRUPTED, STOP_SIGNALS


def _stop_loading(number: int, _frame: object) -> None:
    """End the process at once: while modules are loaded there is nothing to save, and an exception could be lost."""
    with suppress(OSError):  # the terminal is gone
        os.write(2, f"perdure: {INTERRUPTED}\n".encode())
    os._exit(128 + number)


def main() -> None:
    """Load the command line and run the requested command; signals that arrive while modules are loaded end the process."""
    for name in STOP_SIGNALS:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop_loading)
    from perdure import cli  # noqa: PLC0415  (loaded after the handlers are set)

    warnings.showwarning = cli.print_warning
    cli.main()


if __name__ == "__main__":
    main()
