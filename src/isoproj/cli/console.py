"""Print results on standard output, and notes and progress on standard error."""

from __future__ import annotations

import json as json_
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from isoproj._version import __version__
from isoproj.cli.errors import printable
from isoproj.engines.base import walking
from isoproj.solvers.api import Monitor, Step

if TYPE_CHECKING:
    from isoproj.cli.payloads import Payload

__all__ = ["Console"]

# Seconds between lines of progress without a terminal.
_PAUSE = 2.0
# Seconds after which a walk over pairs inside a fit gets its own bar.
_BRIEF = 1.0


class Console:
    """Print what a verb reports, as text or as JSON.

    With ``quiet`` there are no notes and no progress; ``verbose`` shows every step.
    """

    def __init__(self, *, json: bool, quiet: bool, verbose: bool) -> None:
        self.json = json
        self.quiet = quiet
        self.verbose = verbose
        self.warnings: list[str] = []

    def say(self, text: str) -> None:
        """Print a line of the result, unless the result is JSON."""
        if not self.json:
            sys.stdout.write(f"{printable(text)}\n")

    def tell(self, payload: Payload) -> None:
        """Print the result as JSON, if the user chose JSON."""
        if self.json:
            head = {"verb": payload.verb, "isoproj": __version__}
            whole = {**head, **_plain(payload), "warnings": self.warnings}
            sys.stdout.write(json_.dumps(_plain(whole), allow_nan=False) + "\n")

    def note(self, text: str) -> None:
        """Print a note on standard error, unless quiet."""
        if not self.quiet:
            sys.stderr.write(f"{printable(text)}\n")

    def warn(self, text: str) -> None:
        """Print a warning, and keep it for the JSON result."""
        self.warnings.append(text)
        self.note(f"note: {text}")

    def table(
        self,
        names: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        title: str = "",
        caption: str = "",
        bold: int | None = None,
    ) -> None:
        """Print a table, with borders on a terminal; row number ``bold`` is bold."""
        if self.json:
            return
        if _is_terminal(sys.stdout):
            _draw_table(names, rows, title, caption, bold)
            return
        cells = [list(names), *(list(row) for row in rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(names))]
        self.say(title) if title else None
        for row in cells:
            line = "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True))
            self.say(line.rstrip())
        self.say(caption) if caption else None

    @contextmanager
    def steps(self, n_pairs: int, total: int | None) -> Iterator[Monitor]:
        """Show the progress of a fit; yield the function to call after every step.

        ``n_pairs`` is the number of pairs, ``total`` the number of steps if known.
        """
        if self.quiet or self.verbose or not _is_terminal(sys.stderr):
            with walking(self._pair_lines("searching")):
                yield self._step_lines(total)
            return
        with _step_display(n_pairs, total) as show:
            yield show

    @contextmanager
    def pairs(self, label: str) -> Iterator[Callable[[int, int], None]]:
        """Show the progress of a walk over pairs; yield the function to call.

        Its arguments are the number of pairs done and the number of all pairs.
        """
        if self.quiet or not _is_terminal(sys.stderr):
            yield self._pair_lines(label)
            return
        with _pair_display(label) as show:
            yield show

    @contextmanager
    def pieces(self, label: str, total: int) -> Iterator[Callable[[str, float], None]]:
        """Show the progress of several tasks; yield the function to call after each.

        Its arguments are a description of the task and the seconds left.
        """
        if self.quiet or not _is_terminal(sys.stderr):
            yield self._piece_lines(total)
            return
        with _piece_display(label, total) as show:
            yield show

    def _piece_lines(self, total: int) -> Callable[[str, float], None]:
        """Return a function that prints a line after every task."""
        done = 0

        def show(text: str, seconds_left: float) -> None:
            nonlocal done
            done += 1
            self.note(f"{done} of {total}: {text}; {_duration(seconds_left)} left")

        return show

    def _step_lines(self, total: int | None) -> Monitor:
        """Return a function that prints a line for a step now and then."""
        best = _BestBounds()
        of = "" if total is None else f" of {total}"
        last = time.monotonic()

        def show(step: Step) -> None:
            nonlocal last
            best.see(step)
            now = time.monotonic()
            if self.verbose or now - last >= _PAUSE:
                last = now
                self.note(f"step {step.iteration}{of}: {best}, {step.seconds:.1f} s")

        return show

    def _pair_lines(self, label: str) -> Callable[[int, int], None]:
        """Return a function that prints the progress of a walk now and then."""
        walk, last = _Walk(), time.monotonic()

        def show(done: int, total: int) -> None:
            nonlocal last
            walk.see(done, total)
            if done == 0:
                last = walk.start
            elif time.monotonic() - last >= _PAUSE:
                last = time.monotonic()
                self.note(f"{label}: {done:,} of {total:,} pairs, {walk}")

        return show


class _Walk:
    """Pairs per second and seconds left of a walk over pairs."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.rate = self.left = 0.0

    def see(self, done: int, total: int) -> None:
        now = time.monotonic()
        if done == 0:
            # A new walk begins.
            self.start = now
        self.rate = done / max(now - self.start, 1e-9)
        self.left = (total - done) / max(self.rate, 1e-9)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.start

    def __str__(self) -> str:
        return f"{_rate(self.rate)}, {_duration(self.left)} left"


class _BestBounds:
    """The best distortion and the best lower bound of the steps so far."""

    def __init__(self) -> None:
        self.upper, self.lower = math.inf, 0.0

    def see(self, step: Step) -> None:
        if step.iteration == 0:
            # A new solve begins, perhaps for another number of dimensions.
            self.upper, self.lower = math.inf, 0.0
        self.upper = min(self.upper, step.distortion)
        self.lower = max(self.lower, step.lower_bound)

    def __str__(self) -> str:
        return f"distortion {self.upper:.4f}, at least {self.lower:.4f}"


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever JSON can say
    """Return a value without NumPy types; NaN and infinity become None."""
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _is_terminal(stream: Any) -> bool:  # noqa: ANN401 - a stream, or a stand-in
    """Return whether a stream is a terminal that can redraw lines."""
    return bool(stream.isatty()) and os.environ.get("TERM", "") != "dumb"


def _rate(pairs_per_second: float) -> str:
    """Return a speed in words, such as 1.5 Mpairs/s."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if pairs_per_second >= size:
            return f"{pairs_per_second / size:.1f} {letter}pairs/s"
    return f"{pairs_per_second:.0f} pairs/s"


def _duration(seconds: float) -> str:
    """Return a duration in words, in seconds or minutes."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _draw_table(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    title: str,
    caption: str,
    bold: int | None,
) -> None:
    """Print a table with borders."""
    import rich.console
    import rich.table

    table = rich.table.Table(title=title or None, caption=caption or None)
    for i, name in enumerate(names):
        table.add_column(name, justify="right" if i else "left", overflow="fold")
    for i, row in enumerate(rows):
        # Brackets in cells must not be read as markup of rich.
        cells = [printable(cell).replace("[", r"\[") for cell in row]
        table.add_row(*cells, style="bold" if i == bold else "")
    rich.console.Console(highlight=False).print(table)


@contextmanager
def _step_display(n_pairs: int, total: int | None) -> Iterator[Monitor]:
    """Show a progress bar of a fit; yield the function to call after a step."""
    import rich.console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = rich.console.Console(stderr=True)
    columns: list[Any] = [
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
    ]
    columns += [TextColumn("{task.fields[bounds]}")]
    if console.width >= 72:
        columns += [TextColumn("{task.fields[rate]}"), TimeElapsedColumn()]
    columns += [TimeRemainingColumn()] if total is not None else []
    best, walk = _BestBounds(), _Walk()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("fitting", total=total, bounds="", rate="")
        search = progress.add_task("searching", visible=False, bounds="", rate="")

        def show_walk(done: int, n_pairs: int) -> None:
            walk.see(done, n_pairs)
            progress.update(
                search,
                completed=done,
                total=n_pairs,
                visible=walk.seconds > _BRIEF and done < n_pairs,
                bounds=str(walk),
            )

        def show(step: Step) -> None:
            best.see(step)
            done = n_pairs * (step.iteration + 1) / max(step.seconds, 1e-9)
            # Only solvers with a fixed number of steps look at all pairs in every step.
            working = f"{step.n_working:,} pairs"
            progress.update(
                task,
                completed=step.iteration,
                bounds=f"{best.lower:.4f} to {best.upper:.4f}",
                rate=working if total is None else _rate(done),
            )

        with walking(show_walk):
            yield show


@contextmanager
def _pair_display(label: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar of a walk over pairs; yield the function to call."""
    import rich.console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = rich.console.Console(stderr=True)
    columns: list[Any] = [
        TextColumn(label),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    ]
    walk = _Walk()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(label, total=None, rate="")

        def show(done: int, total: int) -> None:
            walk.see(done, total)
            progress.update(task, completed=done, total=total, rate=_rate(walk.rate))

        yield show


@contextmanager
def _piece_display(label: str, total: int) -> Iterator[Callable[[str, float], None]]:
    """Show a progress bar of several tasks; yield the function to call."""
    import rich.console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns: list[Any] = [
        TextColumn(label),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}"),
        TextColumn("{task.fields[piece]}"),
    ]
    with Progress(*columns, console=rich.console.Console(stderr=True)) as progress:
        task = progress.add_task(label, total=total, left="", piece="")

        def show(text: str, seconds_left: float) -> None:
            left = f"{_duration(seconds_left)} left"
            progress.update(task, advance=1, left=left, piece=text)

        yield show
