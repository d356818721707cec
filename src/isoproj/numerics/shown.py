"""How results show themselves: short texts, small tables, a line that is renewed."""

from __future__ import annotations

import html
import os
import shutil
import sys
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from isoproj.numerics.spectral import Foreign

# The names of the columns, none where rows begin with names, and the cells of each row.
Table: TypeAlias = tuple[Sequence[str], Sequence[Sequence[str]]]
# Rows of a table in a repr; of a longer one, half are shown from each end.
_MOST_ROWS = 20


class Shown:
    """A result whose repr is its text, however large its arrays are."""

    __slots__ = ()

    def __repr__(self) -> str:
        text = str(self)
        return text if "\n" in text else f"<{type(self).__name__}: {text}>"

    def _repr_html_(self) -> str:
        text = html.escape(str(self))
        # Lines are aligned by their spaces, which only this element keeps.
        lines = f'<pre style="white-space: pre-wrap">{text}</pre>'
        return lines if "\n" in text else f"<p>{text}</p>"


class Tabular(Shown):
    """A result whose text is a table; its repr leaves out the middle of a long one."""

    __slots__ = ()

    @abstractmethod
    def _table(self) -> Table:
        """Return the columns and rows."""

    def __str__(self) -> str:
        return aligned(*self._table())

    def __repr__(self) -> str:
        names, rows = self._table()
        return aligned(names, _ends(rows))

    def _repr_html_(self) -> str:
        names, rows = self._table()
        cells = [_html_row("td", row) for row in _ends(rows)]
        head = f"<thead>{_html_row('th', names)}</thead>" if names else ""
        return f"<table>{head}<tbody>{''.join(cells)}</tbody></table>"


def aligned(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as text; columns of numbers are aligned at the right.

    Examples
    --------
    >>> from isoproj.numerics.shown import aligned
    >>> print(aligned(["k", "loss"], [["5", "0.9"], ["10", "0.75"]]))
     k  loss
     5   0.9
    10  0.75
    """
    columns = list(zip(*([names] if names else []), *rows, strict=True))
    shown = []
    for column in columns:
        width = max(map(len, column))
        numbers = all(_is_number(cell) for cell in column[1 if names else 0 :])
        shown.append([c.rjust(width) if numbers else c.ljust(width) for c in column])
    return "\n".join("  ".join(row).rstrip() for row in zip(*shown, strict=True))


def _is_number(cell: str) -> bool:
    """Return whether a cell is a number, or stands for one that is not there."""
    return not cell.strip("0123456789.,%+-∞ ")


def _ends(rows: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
    """Return all rows of a short table, the first and last ones of a long one."""
    if len(rows) <= _MOST_ROWS:
        return rows
    half = _MOST_ROWS // 2
    return [*rows[:half], ["..."] * len(rows[0]), *rows[-half:]]


def _html_row(tag: str, cells: Sequence[str]) -> str:
    """Return a row of an HTML table."""
    inside = "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)
    return f"<tr>{inside}</tr>"


def is_terminal(stream: Foreign) -> bool:
    """Return whether a stream is a terminal that can redraw lines."""
    return bool(stream.isatty()) and os.environ.get("TERM", "") != "dumb"


@contextmanager
def renewed_line() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows a text in place of the one before.

    Notebooks and terminals renew one line; elsewhere, as in logs, each text is a line
    of standard error.
    """
    display = _notebook_display()
    if display is not None:
        yield from _displayed_line(display)
    elif is_terminal(sys.stderr):
        yield from _terminal_line()
    else:
        yield lambda text: print(text, file=sys.stderr)  # noqa: T201


def _terminal_line() -> Iterator[Callable[[str], None]]:
    """Yield the function for a terminal; a text is cut where the line ends."""
    end = ""

    def show(text: str) -> None:
        nonlocal end
        width, end = shutil.get_terminal_size().columns - 1, "\n"
        sys.stderr.write(f"\r{text[:width]:<{width}}")
        sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write(end)


def _notebook_display() -> Callable[..., Any] | None:
    """Return IPython's ``display`` inside a notebook, None elsewhere."""
    # A kernel has loaded IPython already.
    ipython: Any = sys.modules.get("IPython")
    is_notebook = ipython is not None and hasattr(ipython.get_ipython(), "kernel")
    return ipython.display.display if is_notebook else None


def _displayed_line(display: Callable[..., Any]) -> Iterator[Callable[[str], None]]:
    """Yield the function for a notebook, where few texts a second are enough."""
    handle: Any = None
    last, shown_at = "", 0.0

    def draw(text: str) -> None:
        nonlocal handle, shown_at
        handle, shown_at = handle or display({}, raw=True, display_id=True), time.time()
        handle.update({"text/plain": text}, raw=True)

    def show(text: str) -> None:
        nonlocal last
        last = text
        # Seconds between two texts of a line that a notebook renews.
        if time.time() - shown_at >= 0.1:
            draw(text)

    try:
        yield show
    finally:
        if last:
            draw(last)
