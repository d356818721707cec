"""Run one verb and return its exit status; import libraries only when needed."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from isoproj.cli.arguments import parse
from isoproj.cli.errors import ClaimFailed, Interrupted, UsageError, line_of

if TYPE_CHECKING:
    from isoproj.cli.console import Console

DONE, CLAIM_FAILED, UNUSABLE, STOPPED = 0, 1, 2, 130
# Verbs whose module has the name of another verb.
_MODULES = {"verify": "audit", "frontier": "curve"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return 0 done, 1 claim failed, 2 bad usage, 130 stopped."""
    try:
        options = parse(sys.argv[1:] if arguments is None else arguments)
    except SystemExit as request:
        # argparse raises SystemExit; a returned status is easier to test.
        return int(request.code or 0)
    except KeyboardInterrupt:
        return STOPPED
    try:
        with _answered(options.verb):
            status = _run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        _abandon_stdout()
        # What shells show for a program whose output is no longer read (SIGPIPE).
        return 141
    except OSError as error:
        _abandon_stdout()
        return _complain(options.verb, line_of(error))
    return status


def _run(options: argparse.Namespace) -> int:
    """Run a verb; turn every error into one line and an exit status."""
    try:
        # Imported here so that help appears at once.
        from isoproj.cli.console import Console

        name = f"isoproj.cli.{_MODULES.get(options.verb, options.verb)}"
        module = importlib.import_module(name)
        console = Console(
            json=options.json, quiet=options.quiet, verbose=options.verbose
        )
        with _shown_warnings(console):
            getattr(module, options.verb)(options, console)
        for failure in console.failures:
            _complain(options.verb, failure)
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
        from isoproj.exceptions import InfeasibleError, IsoprojError

        line = line_of(error)
        expected = (UsageError, IsoprojError, ValueError, OSError, MemoryError)
        if not isinstance(error, expected):
            if options.verbose:
                raise
            line = (
                f"{type(error).__name__}: {line} This is a fault of isoproj; -v shows "
                "where. Please report it."
            )
        _complain(options.verb, line)
        return CLAIM_FAILED if isinstance(error, InfeasibleError) else UNUSABLE
    return UNUSABLE if console.failures else DONE


def _complain(verb: str, text: str) -> int:
    """Print an error message and return the exit status."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"isoproj {verb}: {text}\n")
    return UNUSABLE


def _abandon_stdout() -> None:
    """Redirect standard output to nowhere; the interpreter flushes it at exit."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@contextlib.contextmanager
def _shown_warnings(console: Console) -> Iterator[None]:
    """Show user warnings as single lines, and ignore other warnings."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        console.warn(line_of(message) if isinstance(message, Warning) else message)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


@contextlib.contextmanager
def _answered(verb: str) -> Iterator[None]:
    """Answer Ctrl-C from a thread of its own, whatever the main thread is busy with.

    Where nothing is found yet, or at the second, the process ends.
    """
    is_main = threading.current_thread() is threading.main_thread()
    is_usual = is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not is_usual or os.name != "posix":
        yield
        return
    hear, told = os.pipe()
    os.set_blocking(told, False)
    is_over = threading.Event()
    threading.Thread(target=_listen, args=(hear, verb, is_over), daemon=True).start()
    before = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    try:
        yield
    finally:
        is_over.set()
        signal.set_wakeup_fd(before)
        os.close(told)


def _listen(hear: int, verb: str, is_over: threading.Event) -> None:
    """Answer every Ctrl-C; end the process where there is nothing to wait for."""
    n_heard = 0
    while heard := os.read(hear, 64):
        n_heard += heard.count(signal.SIGINT)
        if not n_heard:
            continue
        # While this module is not loaded, no search has begun.
        module = sys.modules.get("isoproj.numerics.interrupts")
        stop = module.present_stop() if module is not None else None
        if n_heard == 1 and stop is not None and stop.is_begun:
            stop.ask()
        # The verb may end by itself in these seconds; then the process ends.
        elif not is_over.wait(0.3):
            with contextlib.suppress(OSError):
                os.write(2, f"isoproj {verb}: stopped; nothing was written.\n".encode())
            os._exit(STOPPED)
    os.close(hear)
