"""Records on disk: one JSON object a line.

A line is either a run (machine, versions, data) or a finished cell that names its run.
Lines are appended as cells finish; a last line that a kill cut short is ignored.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isoproj.exceptions import FormatError
from isoproj.numerics.container import write_atomically
from paper.table import Cell, Subject


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished cell: facts about its sample, scores, its run, and its seconds.

    Scores go by method, or by whatever the experiment varies.
    """

    cell: Cell
    facts: dict[str, Any]
    scores: dict[str, Any]
    run: str = ""
    seconds: float = 0.0

    @property
    def has_failed(self) -> bool:
        """Whether a method failed, so that the cell is worth another try."""
        return any("error" in score for score in self.scores.values())

    def as_dict(self) -> dict[str, Any]:
        """Return the content of a line."""
        return {
            "experiment": self.cell.experiment,
            "data": self.cell.subject.data,
            "labels": list(self.cell.subject.labels),
            "r": self.cell.r,
            "k": self.cell.k,
            "seed": self.cell.seed,
            "run": self.run,
            "seconds": self.seconds,
            "facts": self.facts,
            "scores": self.scores,
        }

    @staticmethod
    def from_dict(line: dict[str, Any]) -> Finished:
        """Return the cell of a line."""
        subject = Subject(line["data"], tuple(line["labels"]))
        numbers = (int(line[name]) for name in ("r", "k", "seed"))
        return Finished(
            Cell(line["experiment"], subject, *numbers),
            dict(line["facts"]),
            dict(line["scores"]),
            str(line["run"]),
            float(line["seconds"]),
        )


@dataclass(slots=True, eq=False)
class Records:
    """All finished cells by key, and the runs that made them by name.

    A cell that is finished again replaces the older one.
    """

    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    cells: dict[str, Finished] = field(default_factory=dict)

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Records:
        """Return the records of a file, packed or not, empty where it does not exist.

        Raises ``FormatError`` if a whole line is not a record.
        """
        records = Records()
        for run, finished in _parsed(Path(path)):
            if finished is None:
                records.runs[run["run"]] = run
            else:
                records.add(finished)
        return records

    def add(self, finished: Finished) -> None:
        """Add a finished cell."""
        self.cells[finished.cell.key] = finished

    def of(self, experiments: Iterable[str]) -> list[Finished]:
        """Return the cells of some experiments, in the order of their keys."""
        names = set(experiments)
        found = [f for f in self.cells.values() if f.cell.experiment in names]
        return sorted(found, key=lambda f: _order(f.cell))

    def lacking(self, cells: Iterable[Cell]) -> list[Cell]:
        """Return the cells that are missing or have failed."""
        return [
            cell
            for cell in cells
            if cell.key not in self.cells or self.cells[cell.key].has_failed
        ]

    def within(self, keys: Iterable[str]) -> Records:
        """Return the records of the cells with these keys, with all runs."""
        return Records(
            dict(self.runs),
            {key: self.cells[key] for key in keys if key in self.cells},
        )

    def json_lines(self) -> str:
        """Return runs that a cell names, then cells, in a fixed order."""
        used = {finished.run for finished in self.cells.values()}
        lines: list[dict[str, Any]] = [
            run for name, run in sorted(self.runs.items()) if name in used
        ]
        cells = sorted(self.cells.values(), key=lambda f: _order(f.cell))
        lines += [finished.as_dict() for finished in cells]
        return "".join(_line(line) for line in lines)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write all records in order, without replaced ones."""
        write_atomically(path, self.json_lines().encode())


def append(path: Path, line: dict[str, Any]) -> None:
    """Add one line to a file, in one write."""
    with path.open("ab") as file:
        file.write(_line(line).encode())


def mend(path: Path) -> None:
    """Remove a last line that a kill cut short."""
    if not path.exists():
        return
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        write_atomically(path, content[: content.rfind(b"\n") + 1])


def _line(value: dict[str, Any]) -> str:
    """Return a line of JSON."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False) + "\n"


def _order(cell: Cell) -> tuple[str, str, int, int, int]:
    """Return the key by which cells are sorted."""
    return cell.experiment, str(cell.subject), cell.r, cell.k, cell.seed


def _parsed(path: Path) -> Iterator[tuple[dict[str, Any], Finished | None]]:
    """Yield each line of a file, and its finished cell unless it describes a run."""
    if not path.exists():
        return
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    lines = content.decode().split("\n")
    # After the last line break there is nothing, or a line that a kill cut short.
    for number, text in enumerate(lines[:-1], 1):
        try:
            line = json.loads(text)
            finished = Finished.from_dict(line) if "experiment" in line else None
            _ = line["run"]
        except (ValueError, KeyError, TypeError) as error:
            msg = (
                f"line {number} of {path} must be a record of the experiments; "
                f"reading it fails: {error}. Remove the line or the file."
            )
            raise FormatError(msg) from None
        yield line, finished
