"""Read .csv and .tsv files; errors name the line and column of the fault."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isoproj.exceptions import FormatError
from isoproj.files.formats import Format
from isoproj.files.read.sources import (
    Selection,
    Source,
    check_unpacked,
    choose_columns,
    parsing,
)
from isoproj.numerics.rounding import counted
from isoproj.numerics.spectral import Foreign
from isoproj.numerics.storage import MEMORY_LIMIT

# What stands in tables for a value that is missing.
_MISSING = {"", "na", "n/a", "nan", "null", "none", "?", "-"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Separator, column names, number of lines to skip, and number of columns."""

    delimiter: str | None
    names: tuple[str, ...] | None
    n_skipped: int
    n_columns: int


def text_names(source: Source) -> tuple[tuple[str, ...], int]:
    """Return the names of the columns, if there is a header, and their number."""
    layout = _layout_of(source, Selection(), MEMORY_LIMIT)
    return layout.names or (), layout.n_columns


def read_text(
    source: Source, selection: Selection, limit: float = MEMORY_LIMIT
) -> tuple[NDArray[np.float64], tuple[str, ...] | None]:
    """Return the numbers of a text in UTF-8, and the names of their columns or None."""
    with parsing(source):
        layout = _layout_of(source, selection, limit)
    columns, names = None, layout.names
    if selection.columns is not None:
        columns = choose_columns(
            source.name, selection.columns, names, layout.n_columns
        )
        names = None if names is None else tuple(names[c] for c in columns)
    with parsing(source):
        has_rows = next(_rows(source, layout), None) is not None
    if not has_rows:
        msg = f"{source.name} must hold points; it has no rows. Choose another file."
        raise FormatError(msg)
    try:
        with _lines(source) as lines:
            points = np.loadtxt(
                lines,
                delimiter=layout.delimiter,
                skiprows=layout.n_skipped,
                usecols=columns,
                comments=None,
                quotechar='"',
                ndmin=2,
            )
    except (ValueError, OverflowError) as error:
        fault = _fault(source, layout, columns) or str(error).splitlines()[0]
        msg = f"{source.name}, {fault}"
        raise FormatError(msg) from None
    return points, names


def _lines(source: Source) -> io.TextIOWrapper:
    """Open the lines of a text."""
    # utf-8-sig skips the byte order mark that spreadsheets write.
    return io.TextIOWrapper(source.open(), encoding="utf-8-sig", newline=None)


def _layout_of(source: Source, selection: Selection, limit: float) -> _Layout:
    """Return the layout of a text from its first line that is not blank.

    What was unpacked is refused if its matrix takes more memory than allowed: two
    characters become a number.
    """
    try:
        with _lines(source) as lines:
            n_blank, first = 0, ""
            for line in lines:
                if line.strip():
                    first = line.rstrip("\n")
                    break
                n_blank += 1
            n_rows = 1 + sum(1 for _ in lines)
    except UnicodeDecodeError as error:
        msg = (
            f"{source.name} must be text in UTF-8; byte {error.start} is not. "
            "Save it as UTF-8."
        )
        raise FormatError(msg) from None
    if not first:
        msg = (
            f"{source.name} must hold points; it has only blank lines. "
            "Choose another file."
        )
        raise FormatError(msg)
    delimiter = _delimiter(source, first)
    if source.path is None:
        n_fields = 1 + first.count(delimiter or " ")
        # Bytes that the fields of a line take while they are looked at, for every
        # field.
        check_unpacked(source.name, n_fields * (8 * n_rows + 200), limit)
    fields = _split(first, delimiter)
    has_header = _is_header(source, fields, selection.header)
    return _Layout(
        delimiter=delimiter,
        names=tuple(f.strip() for f in fields) if has_header else None,
        n_skipped=n_blank + has_header,
        n_columns=len(fields),
    )


def _delimiter(source: Source, line: str) -> str | None:
    """Return the separator of the fields of a line; None means white space."""
    outside = "".join(line.split('"')[::2])
    counts = {mark: outside.count(mark) for mark in ",;\t"}
    common = max(counts, key=lambda mark: counts[mark])
    promised = {Format.TSV: "\t", Format.CSV: ",;"}.get(source.format, "")
    is_named = source.name.lower().removesuffix(".gz").endswith((".csv", ".tsv"))
    if counts[common] == 0:
        return None if " " in line.strip() else promised[0]
    if is_named and common not in promised:
        words = {",": "commas", ";": "semicolons", "\t": "tabs"}
        msg = (
            f"{source.name} is named like {source.format.title}, but its fields are "
            f"separated by {words[common]}. Rename it."
        )
        raise FormatError(msg)
    return common


def _split(line: str, delimiter: str | None) -> list[str]:
    """Return the fields of a line."""
    if delimiter is None:
        return line.split()
    return next(csv.reader([line], delimiter=delimiter))


def _is_number(field: str) -> bool:
    """Return whether a field is a number."""
    try:
        float(field)
    except ValueError:
        return False
    return True


def _is_header(source: Source, fields: list[str], asked: str) -> bool:
    """Return whether the first line names the columns; ``asked`` as in Selection."""
    if asked != "auto":
        return asked == "yes"
    counted = [f.strip() for f in fields if f.strip()]
    # A data frame without names is saved with a first line of 0, 1, 2, ..., which
    # looks like a point. So the user must say which it is.
    if len(counted) > 2 and counted == [str(i) for i in range(len(counted))]:
        msg = (
            f"{source.name} begins with {', '.join(counted[:3])}, ...: that may be a "
            "header or a point. Add --header yes or --header no."
        )
        raise FormatError(msg)
    return not any(_is_number(field) for field in fields)


def _rows(source: Source, layout: _Layout) -> Iterator[tuple[int, list[str]]]:
    """Yield line number, counted from 1, and fields of every row that is not blank."""
    with _lines(source) as lines:
        for _ in range(layout.n_skipped):
            lines.readline()
        if layout.delimiter is None:
            for number, line in enumerate(lines, layout.n_skipped + 1):
                if line.strip():
                    yield number, line.split()
            return
        reader = csv.reader(lines, delimiter=layout.delimiter)
        for fields in reader:
            if fields:
                yield layout.n_skipped + reader.line_num, fields


def _fault(source: Source, layout: _Layout, columns: list[int] | None) -> str:
    """Return place and reason of the first fault in a table of numbers, or ""."""
    with parsing(source):
        for row, (line, fields) in enumerate(_rows(source, layout)):
            place = f"line {line} (row {row})"
            if len(fields) != layout.n_columns:
                return (
                    f"{place}: has {len(fields)} columns where the first line has "
                    f"{layout.n_columns}. Every row must have as many; correct it."
                )
            looked_at: Any = range(len(fields)) if columns is None else columns
            for column in looked_at:
                if not _is_number(fields[column]):
                    where = f"{place}, column {column}{_named(layout, column)}"
                    if _is_missing(fields[column]):
                        told = _how_much_is_missing(source, layout, looked_at)
                        return f"{where}: no value. {told}"
                    return f"{where}: {_complaint(fields[column])}"
    return ""


def _named(layout: _Layout, column: int) -> str:
    """Return the name of a column in brackets, or ""."""
    return f" ({layout.names[column]!r})" if layout.names else ""


def _complaint(field: str) -> str:
    """Return the message for a field that is not a number."""
    shown = repr(field[:40])
    if re.fullmatch(r"\s*[-+]?\d+,\d+\s*", field):
        return (
            f"{shown} has a decimal comma. Save the table with decimal points: "
            "pandas.read_csv(FILE, sep=None, engine='python', decimal=',')."
            "to_csv('points.csv', index=False)."
        )
    return (
        f"{shown} is not a number. Leave that column out with --columns, or correct "
        "the field."
    )


def _how_much_is_missing(source: Source, layout: _Layout, looked_at: Foreign) -> str:
    """Return how many values are missing where, and what helps."""
    n_rows, hurt = 0, 0
    missing: set[int] = set()
    for _, fields in _rows(source, layout):
        gone = {c for c in looked_at if fields[c:] and _is_missing(fields[c])}
        n_rows, hurt, missing = n_rows + 1, hurt + bool(gone), missing | gone
    few = ", ".join(f"{c}{_named(layout, c)}" for c in sorted(missing)[:5])
    return (
        f"Values are missing in {hurt:,} of {counted(n_rows, 'row')} and in "
        f"{counted(len(missing), 'column')} ({few}{', ...' if len(missing) > 5 else ''}"
        "). Drop those rows, leave those columns out with --columns, or fill them: "
        "sklearn.impute.SimpleImputer."
    )


def _is_missing(field: str) -> bool:
    """Return whether a field says that there is no value."""
    return field.strip().lower() in _MISSING
