"""``isoproj VERB``: dispatch, exit status, and nothing heavy before it is needed."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from isoproj.cli.arguments import build_parser
from isoproj.cli.errors import ClaimFailed, Interrupted, Trouble, line_of

if TYPE_CHECKING:
    from isoproj.cli.console import Console

__all__ = ["CLAIM_FAILED", "DONE", "GONE", "STOPPED", "UNUSABLE", "main"]

DONE, CLAIM_FAILED, UNUSABLE, STOPPED = 0, 1, 2, 130
# As a shell shows a program that was stopped because nobody reads its output.
GONE = 141

# Verbs that share a module with another; all others have one of their own name.
_MODULES = {"verify": "audit", "frontier": "curve"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit status.

    Parameters
    ----------
    arguments : sequence of str or None
        What follows the program's name; None means ``sys.argv``.

    Returns
    -------
    int
        0 done, 1 a claim failed, 2 bad usage or input, 130 stopped by the user.

    Examples
    --------
    >>> from isoproj.cli.program import main
    >>> main(["info", "wine"])
    wine: 178 points, 13 features, float64 (built-in)
    0
    """
    parser = build_parser()
    try:
        options = parser.parse_args(arguments)
    except SystemExit as request:
        # argparse leaves the program from within; a status is easier to test.
        return int(request.code or 0)
    try:
        status = _run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        _abandon_stdout()
        return GONE
    except OSError as error:
        _abandon_stdout()
        return _complain(options.verb, line_of(error))
    return status


def _run(options: argparse.Namespace) -> int:
    """Run a verb; whatever goes wrong becomes one line and a status."""
    try:
        # Heavy imports wait until a verb needs them: the help must appear at once.
        from isoproj.cli.console import Console

        name = f"isoproj.cli.{_MODULES.get(options.verb, options.verb)}"
        module = importlib.import_module(name)
        console = Console(
            json=options.json, quiet=options.quiet, verbose=options.verbose
        )
        with _heard_warnings(console):
            getattr(module, options.verb)(options, console)
    except ClaimFailed:
        return CLAIM_FAILED
    except Interrupted:
        return STOPPED
    except KeyboardInterrupt:
        _complain(options.verb, "stopped; nothing was written.")
        return STOPPED
    except BrokenPipeError:
        raise
    except Exception as error:
        line = _explained(error)
        if line is None and options.verbose:
            raise
        _complain(options.verb, line or _puzzled(error))
        return CLAIM_FAILED if _is_refusal(error) else UNUSABLE
    return DONE


def _is_refusal(error: Exception) -> bool:
    """Return whether the answer is that no projection is as good as asked for."""
    from isoproj.exceptions import InfeasibleError

    return isinstance(error, InfeasibleError)


def _explained(error: Exception) -> str | None:
    """Return an error that was foreseen as one line, None for any other."""
    from isoproj.exceptions import IsoprojError

    foreseen = (Trouble, IsoprojError, ValueError, OSError, MemoryError)
    return line_of(error) if isinstance(error, foreseen) else None


def _puzzled(error: Exception) -> str:
    return (
        f"{type(error).__name__}: {line_of(error)} This is a fault of isoproj; -v "
        "shows where. Please report it."
    )


def _complain(verb: str, text: str) -> int:
    with contextlib.suppress(OSError):
        sys.stderr.write(f"isoproj {verb}: {text}\n")
    return UNUSABLE


def _abandon_stdout() -> None:
    """Let nothing be written any more: the interpreter would try again at exit."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@contextlib.contextmanager
def _heard_warnings(console: Console) -> Iterator[None]:
    """Show what users should know as a line; keep the talk of libraries away."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        console.warn(line_of(message) if isinstance(message, Warning) else message)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield
