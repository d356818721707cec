"""One stream of progress events: steps of a solve and walks over pairs.

Whoever works calls ``tell``; whoever wants to know wraps the work in ``watching``.
Every step is also a debug record of the logger ``isoproj``.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import UnionType
from typing import TypeAlias

LOGGER = logging.getLogger("isoproj")
# Without a handler of the user's own, records are not printed.
LOGGER.addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Both bounds after one round of a solve.

    Parameters
    ----------
    iteration : int
        Number of the round, counted from 0.
    distortion : float
        What the worst of all pairs loses under this round's basis.
    lower_bound : float
        Loss of the worst pair that no projection can go below, as proved so far.
    seconds : float
        Time since the fit began.
    relaxed : float
        Value of the relaxation's matrix; NaN where a solver has none.
    n_working : int
        Pairs in the working set.
    kept, kept_bound : float
        Share of an objective that the basis keeps, and a share that no projection
        under the cap can exceed; 0 and 1 where there is no objective.
    phase : str
        What the solver is doing, in a few words.
    """

    iteration: int
    distortion: float
    lower_bound: float
    seconds: float
    relaxed: float = math.nan
    n_working: int = 0
    kept: float = 0.0
    kept_bound: float = 1.0
    phase: str = ""

    @property
    def gap(self) -> float:
        """Distortion over lower bound, minus 1; infinite while nothing is proved."""
        if self.lower_bound <= 0.0:
            return math.inf if self.distortion > 0.0 else 0.0
        return self.distortion / self.lower_bound - 1.0

    @property
    def bounds(self) -> str:
        """Both bounds and their gap in words; a bound that is not known says so.

        A gap of 100 % or more is told as the ratio of the two.
        """
        has_basis = math.isfinite(self.distortion)
        has_objective = self.kept > 0.0 or self.kept_bound < 1.0
        words = ["no projection yet"]
        if has_basis:
            words = [f"worst pair loses {self.distortion:.4f}"]
        is_bounded = self.lower_bound > 0.0 or self.distortion <= 0.0
        if math.isfinite(self.lower_bound) and is_bounded:
            words.append(f"lower bound {self.lower_bound:.4f}")
        elif not has_objective:
            words.append("no lower bound yet")
        gap = self.gap if has_basis else math.inf
        if has_objective:
            most = min(1.0, self.kept_bound)
            words.append(f"keeps {self.kept:.4f} of at most {most:.4f}")
            gap = most / self.kept - 1.0 if self.kept > 0.0 else math.inf
        if math.isfinite(gap):
            words.append(
                f"gap {gap:.2%}" if gap < 1.0 else f"{1.0 + gap:.1f} times apart"
            )
        return ", ".join(words)

    def line(self, total: int | None = None) -> str:
        """Return number, of ``total`` if known, phase, bounds and seconds in words."""
        of = "" if total is None else f" of {total}"
        phase = f"{self.phase}, " if self.phase else ""
        head = f"step {self.iteration}{of}: {phase}"
        return f"{head}{self.bounds}, {self.seconds:.1f} s"


@dataclass(frozen=True, slots=True)
class Walk:
    """How far a walk over pairs is; ``done`` is 0 at its beginning.

    ``name`` says what is done, where it is not what the listener expects.
    """

    done: int
    total: int
    name: str = ""


class OutOfTime(Exception):  # noqa: N818 - a signal between our own functions
    """A walk over pairs would not end in time."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A line that is told before long work."""

    text: str


Event: TypeAlias = Step | Walk | Notice
Listener: TypeAlias = Callable[[Event], None]

_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("listeners", default=())


@contextmanager
def watching(
    listener: Callable[..., None], kind: type[Event] | UnionType | None = None
) -> Iterator[None]:
    """Call ``listener`` with every progress event inside the context.

    With a ``kind``, such as ``Step``, it is called with events of that kind alone.
    """

    def chosen(event: Event) -> None:
        if kind is None or isinstance(event, kind):
            listener(event)

    token = _listeners.set((*_listeners.get(), chosen))
    try:
        yield
    finally:
        _listeners.reset(token)


@contextmanager
def ending_within(seconds: float | None) -> Iterator[None]:
    """Raise OutOfTime from a walk inside the context that will not end in time.

    A walk that has taken a tenth of the time tells how long the rest of it takes.
    None means any time.
    """
    if seconds is None:
        yield
        return
    end = time.monotonic() + seconds
    began = time.monotonic()

    def judge(walk: Walk) -> None:
        nonlocal began
        now = time.monotonic()
        if walk.done == 0:
            began = now
            return
        left = (now - began) * (walk.total / walk.done - 1.0)
        # Share of its time after which a walk's speed tells its end.
        is_known = now - began > 0.1 * seconds
        if left > 0.0 and (now > end or (is_known and now + left > end)):
            raise OutOfTime

    with watching(judge, Walk):
        yield


def tell(event: Event) -> None:
    """Call every active listener with an event, and log it unless it is a walk."""
    if isinstance(event, Notice):
        LOGGER.info(event.text)
    if isinstance(event, Step) and LOGGER.isEnabledFor(logging.DEBUG):
        LOGGER.debug(event.line())
    for listener in _listeners.get():
        listener(event)
