"""Print results on standard output, and notes and progress on standard error."""

from __future__ import annotations

import json as json_
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from isoproj._version import __version__
from isoproj.cli.errors import printable
from isoproj.cli.payloads import told
from isoproj.numerics.progress import Notice, Step, Walk, watching
from isoproj.numerics.shown import aligned, is_terminal

if TYPE_CHECKING:
    from rich.progress import Progress

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
        self.failures: list[str] = []

    def say(self, text: str) -> None:
        """Print a line of the result, unless the result is JSON."""
        if not self.json:
            sys.stdout.write(f"{printable(text)}\n")

    def tell(self, name: str, source: object = None, /, **given: Any) -> None:  # noqa: ANN401
        """Print the result as JSON, if the user chose JSON.

        ``name`` is that of the schema, of which the first word is the verb; the fields
        are those given, and attributes of ``source``.
        """
        if self.json:
            head = {"verb": name.partition(" ")[0], "isoproj": __version__}
            whole = {**head, **told(name, source, **given), "warnings": self.warnings}
            sys.stdout.write(json_.dumps(_plain(whole), allow_nan=False) + "\n")

    def note(self, text: str) -> None:
        """Print a note on standard error, unless quiet."""
        if not self.quiet:
            sys.stderr.write(f"{printable(text)}\n")

    def warn(self, text: str) -> None:
        """Print a warning, and keep it for the JSON result."""
        self.warnings.append(text)
        self.note(f"note: {text}")

    def fail(self, text: str) -> None:
        """Keep a failure that is told after the result, with the exit status."""
        self.failures.append(text)

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
        if is_terminal(sys.stdout):
            _draw_table(names, rows, title, caption, bold)
            return
        self.say("\n".join(filter(None, [title, aligned(names, rows), caption])))

    @contextmanager
    def progress(
        self,
        walks: str,
        *,
        n_pairs: int | None = None,
        total: int | None = None,
        aim: float | None = None,
        limit: float | None = None,
    ) -> Iterator[None]:
        """Show all progress events inside the context.

        ``walks`` says what a walk over pairs does, such as "auditing". If there are
        steps too, give the number of all pairs, and if known the ``total`` of steps,
        the gap that is the ``aim`` and the time ``limit``.
        """
        steps = _Steps(total, aim, limit)
        with watching(lambda notice: self.note(notice.text), Notice):
            if self.quiet or self.verbose or not is_terminal(sys.stderr):
                with watching(_Lines(self, walks, steps), Walk | Step):
                    yield
                return
            with _bars(walks, n_pairs, steps) as bars, watching(bars, Walk | Step):
                yield


class _Lines:
    """Prints progress events as lines: every step if verbose, else one now and then."""

    def __init__(self, console: Console, walks: str, steps: _Steps) -> None:
        self.console, self.walks = console, walks
        self.steps, self.speed = steps, _Speed()
        self.last_step = self.last_walk = time.monotonic()

    def __call__(self, event: Walk | Step) -> None:
        if isinstance(event, Walk):
            self._show_walk(event)
        else:
            self._show_step(event)

    def _show_step(self, step: Step) -> None:
        best, now = self.steps.see(step), time.monotonic()
        if self.console.verbose or now - self.last_step >= _PAUSE:
            self.last_step = now
            self.console.note(best.line(self.steps.total) + self.steps.outlook(step))

    def _show_walk(self, walk: Walk) -> None:
        self.speed.see(walk)
        if walk.done == 0:
            self.last_walk = self.speed.start
        elif time.monotonic() - self.last_walk >= _PAUSE:
            self.last_walk = time.monotonic()
            done = f"{walk.done:,} of {walk.total:,} pairs"
            self.console.note(f"{walk.name or self.walks}: {done}, {self.speed}")


class _Bars:
    """Shows progress events as bars of rich: one of steps, one of the present walk."""

    def __init__(
        self,
        progress: Progress,
        walks: str,
        n_pairs: int | None,
        steps: _Steps,
    ) -> None:
        self.progress, self.walks, self.n_pairs = progress, walks, n_pairs
        self.steps, self.speed = steps, _Speed()
        self.fit = progress.add_task(
            "fitting",
            total=steps.total,
            bounds="",
            rate="",
            visible=n_pairs is not None,
        )
        self.walk = progress.add_task(
            walks, total=None, bounds="", rate="", visible=n_pairs is None
        )

    def __call__(self, event: Walk | Step) -> None:
        if isinstance(event, Walk):
            self._show_walk(event)
        else:
            self._show_step(event)

    def _show_walk(self, walk: Walk) -> None:
        self.speed.see(walk)
        is_long = self.speed.seconds > _BRIEF and walk.done < walk.total
        self.progress.update(
            self.walk,
            description=walk.name or self.walks,
            completed=walk.done,
            total=walk.total,
            visible=self.n_pairs is None or is_long,
            bounds=str(self.speed),
        )

    def _show_step(self, step: Step) -> None:
        best = self.steps.see(step)
        # Only solvers with a fixed number of steps look at all pairs in every step.
        rate = f"{step.n_working:,} pairs"
        if self.steps.total is not None:
            done = (self.n_pairs or 0) * (step.iteration + 1)
            rate = _rate(done / max(step.seconds, 1e-9))
        gap = f"gap {best.gap:.2%}, " if best.gap < 1.0 else ""
        self.progress.update(
            self.fit,
            description=f"fitting, {step.phase}" if step.phase else "fitting",
            completed=step.iteration,
            bounds=_interval(best),
            rate=gap + rate + self.steps.outlook(step),
        )


class _Steps:
    """The steps of a fit; with a known ``total``, the best bounds among them.

    A fit of unknown length may solve several problems one after the other, and tells
    the best bounds of each itself.
    """

    def __init__(
        self, total: int | None, aim: float | None, limit: float | None
    ) -> None:
        self.total, self.aim, self.limit = total, aim, limit
        self.best: Step | None = None

    def outlook(self, step: Step) -> str:
        """Return the gap aimed at and the time that is left, where they are known."""
        words = [] if self.aim is None else [f"aims at {100 * self.aim:.3g}%"]
        if self.limit is not None:
            left = max(0.0, self.limit - step.seconds)
            words.append(f"at most {_duration(left)} left")
        return "".join(f", {word}" for word in words)

    def see(self, step: Step) -> Step:
        """Return the step, with the best bounds so far."""
        if self.total is not None and self.best is not None:
            upper = min(step.distortion, self.best.distortion)
            lower = max(step.lower_bound, self.best.lower_bound)
            step = replace(step, distortion=upper, lower_bound=lower)
        self.best = step
        return step


class _Speed:
    """Pairs per second and seconds left of a walk over pairs."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.rate = self.left = 0.0

    def see(self, walk: Walk) -> None:
        now = time.monotonic()
        if walk.done == 0:
            # A new walk begins.
            self.start = now
        self.rate = walk.done / max(now - self.start, 1e-9)
        self.left = (walk.total - walk.done) / max(self.rate, 1e-9)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.start

    def __str__(self) -> str:
        if self.rate == 0.0:
            return "no pair done yet"
        return f"{_rate(self.rate)}, {_duration(self.left)} left"


def _interval(step: Step) -> str:
    """Return both bounds as an interval, in words before there is a projection."""
    if not math.isfinite(step.distortion):
        return "no projection yet"
    # No distortion is below 0, so 0 is a bound before another is known.
    return f"{max(0.0, step.lower_bound):.4f} to {step.distortion:.4f}"


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
def _bars(walks: str, n_pairs: int | None, steps: _Steps) -> Iterator[_Bars]:
    """Show progress bars on a terminal; yield the listener that moves them."""
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
        TextColumn("{task.fields[bounds]}"),
    ]
    if console.width >= 72:
        columns += [TextColumn("{task.fields[rate]}"), TimeElapsedColumn()]
    columns += [TimeRemainingColumn()] if steps.total is not None else []
    with Progress(*columns, console=console) as progress:
        yield _Bars(progress, walks, n_pairs, steps)
