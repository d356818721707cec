"""Print results on standard output, and notes and progress on standard error."""

from __future__ import annotations

import json as json_
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from isoproj._version import __version__
from isoproj.cli.errors import printable
from isoproj.cli.payloads import told
from isoproj.numerics.progress import Notice, Step, Walk, watching
from isoproj.numerics.shown import aligned, is_terminal, renewed_line

# Seconds between lines of progress in a log, and between texts of a renewed line.
_PAUSE, _BLINK = 2.0, 0.1
# A walk over pairs that takes fewer seconds than this is not shown.
_BRIEF = 1.0


@dataclass(kw_only=True)
class Console:
    """Print what a verb reports, as text or as JSON.

    With ``quiet`` there are no notes and no progress; ``verbose`` shows every step.
    """

    json: bool
    quiet: bool
    verbose: bool
    warnings: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

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

    def table(self, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table."""
        self.say(aligned(names, rows))

    @contextmanager
    def progress(
        self,
        walks: str,
        *,
        total: int | None = None,
        aim: float | None = None,
        limit: float | None = None,
    ) -> Iterator[None]:
        """Show all progress events inside the context.

        A terminal shows them in a line that is renewed, a log in a line now and then.
        ``walks`` says what a walk over pairs does, such as "auditing". Of steps give,
        if known, the ``total``, the gap that is the ``aim`` and the time ``limit``.
        """
        if self.quiet:
            yield
            return
        is_renewed = not self.verbose and is_terminal(sys.stderr)
        pause = _BLINK if is_renewed else 0.0 if self.verbose else _PAUSE
        renewed = renewed_line() if is_renewed else nullcontext(self.note)
        with renewed as show, watching(lambda told: self.note(told.text), Notice):
            lines = _Lines(show, pause, walks, total, aim, limit)
            with watching(lines, Walk | Step):
                yield


@dataclass
class _Lines:
    """Tells progress events in lines, at most one in ``pause`` seconds of each kind.

    With a known ``total`` of steps it tells the best bounds among them. A fit of
    unknown length may solve several problems one after the other, and tells the best
    bounds of each itself.
    """

    show: Callable[[str], None]
    pause: float
    walks: str
    total: int | None
    aim: float | None
    limit: float | None
    best: Step | None = None
    began: float = field(default_factory=time.monotonic)
    next_step: float = 0.0
    next_walk: float = 0.0

    def __call__(self, event: Walk | Step) -> None:
        now = time.monotonic()
        if isinstance(event, Step):
            self.best = self._best_with(event)
            if now >= self.next_step:
                self.next_step = now + self.pause
                self.show(self.best.line(self.total) + self._outlook(event))
        elif event.done == 0:
            # A new walk begins; a short one is not shown.
            self.began, self.next_walk = now, now + max(_BRIEF, self.pause)
        elif now >= self.next_walk:
            self.next_walk = now + self.pause
            rate = event.done / max(now - self.began, 1e-9)
            left = _duration((event.total - event.done) / rate)
            done = f"{event.done:,} of {event.total:,} pairs"
            name = event.name or self.walks
            self.show(f"{name}: {done}, {_rate(rate)}, {left} left")

    def _best_with(self, step: Step) -> Step:
        """Return the step, with the best bounds so far."""
        if self.total is None or self.best is None:
            return step
        upper = min(step.distortion, self.best.distortion)
        lower = max(step.lower_bound, self.best.lower_bound)
        return replace(step, distortion=upper, lower_bound=lower)

    def _outlook(self, step: Step) -> str:
        """Return the gap aimed at and the time that is left, where they are known."""
        words = "" if self.aim is None else f", aims at {100 * self.aim:.3g}%"
        if self.limit is not None:
            left = max(0.0, self.limit - step.seconds)
            words += f", at most {_duration(left)} left"
        return words


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
