"""``isoproj reproduce``: run the experiments of the paper and judge its claims."""

from __future__ import annotations

import argparse
import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from isoproj.cli import payloads
from isoproj.cli.console import Console
from isoproj.cli.errors import Interrupted, UsageError
from isoproj.cli.outputs import saved
from isoproj.numerics.container import check_writable, write_atomically
from isoproj.numerics.threads import n_threads
from isoproj.reproduction.claims import Verdict, verdicts
from isoproj.reproduction.datasets import MissingDataError, load
from isoproj.reproduction.figures import draw_all
from isoproj.reproduction.page import render_page
from isoproj.reproduction.records import Records
from isoproj.reproduction.runner import CellsDone, run_cells
from isoproj.reproduction.table import Experiment, chosen, in_order

__all__ = ["page_command", "reproduce"]

# Name of the file with the records, in the output folder.
RECORDS = "records.jsonl"


def reproduce(options: argparse.Namespace, console: Console) -> None:
    """Run the missing cells; make page, figures and verdicts from all records."""
    experiments = chosen(options.only, quick=not options.full)
    if options.list:
        _tell_list(experiments, console)
        return
    jobs = n_threads() if options.jobs is None else options.jobs
    if jobs < 1:
        msg = f"--jobs must be at least 1; got {jobs}. Leave it out for one a core."
        raise UsageError(msg)
    folder = Path(options.output)
    path = folder / RECORDS
    if options.report:
        if not path.is_file():
            msg = f"{path} must hold records; there are none. Run without --report."
            raise UsageError(msg)
        records = Records.read(path)
        experiments = _as_recorded(experiments, records)
    else:
        experiments = _with_available_data(
            experiments, console, offline=options.offline
        )
        if find_spec("scs") is None:
            console.warn(
                "SDP+DR by SCS is left out; pip install 'isoproj[sdp]' adds it."
            )
        folder.mkdir(parents=True, exist_ok=True)
        check_writable(path)
        check_writable(_page_of(folder))
        records = _run(experiments, path, jobs, console)
    _publish(options, experiments, records, console)


def _tell_list(experiments: tuple[Experiment, ...], console: Console) -> None:
    """Print the experiments."""
    rows = [
        [
            experiment.name,
            str(len(experiment.cells())),
            experiment.title,
        ]
        for experiment in experiments
    ]
    console.table(["experiment", "cells", "what"], rows)
    console.tell(payloads.Reproduce(experiments=_counts(experiments, Records())))


def _with_available_data(
    experiments: tuple[Experiment, ...], console: Console, *, offline: bool
) -> tuple[Experiment, ...]:
    """Return the experiments whose data are available, with digits instead of MNIST."""
    wanted = {s.data for experiment in experiments for s in experiment.subjects}
    if "mnist" in wanted and not _is_available("mnist", console, offline=offline):
        console.warn("scikit-learn's bundled 8 x 8 digits stand in for MNIST.")
        experiments = _on_digits(experiments)
    if "news" in wanted and not _is_available("news", console, offline=offline):
        console.warn("the experiments on 20 Newsgroups are left out.")
        experiments = _without_news(experiments)
    left = tuple(e for e in experiments if e.cells())
    if not left:
        msg = (
            "none of these experiments can run without its data. Download the data "
            "named above."
        )
        raise UsageError(msg)
    return left


def _is_available(name: str, console: Console, *, offline: bool) -> bool:
    """Return whether a data set is stored or can be downloaded."""
    try:
        load(name, offline=offline)
    except MissingDataError as error:
        console.warn(str(error))
        return False
    return True


def _without_news(experiments: tuple[Experiment, ...]) -> tuple[Experiment, ...]:
    """Return the experiments that do not use 20 Newsgroups."""
    return tuple(
        experiment
        for experiment in experiments
        if all(s.data != "news" for s in experiment.subjects)
    )


def _on_digits(experiments: tuple[Experiment, ...]) -> tuple[Experiment, ...]:
    """Return the experiments with the digits of scikit-learn instead of MNIST."""
    smallest = int(np.bincount(load("digits").train_labels).min())
    return tuple(
        experiment
        if any(s.data == "news" for s in experiment.subjects)
        else experiment.on("digits", smallest)
        for experiment in experiments
    )


def _as_recorded(
    experiments: tuple[Experiment, ...], records: Records
) -> tuple[Experiment, ...]:
    """Return the experiments with the data that the records were made with."""
    data = {finished.cell.subject.data for finished in records.cells.values()}
    if "digits" in data and "mnist" not in data:
        experiments = _on_digits(experiments)
        if "news" not in data:
            experiments = _without_news(experiments)
    return experiments


def _run(
    experiments: tuple[Experiment, ...], path: Path, jobs: int, console: Console
) -> Records:
    """Run the cells that have no record yet, and show the progress."""
    cells = in_order(experiments)
    missing = len(Records.read(path).lacking(cells))
    console.note(f"{len(cells) - missing} of {len(cells)} cells are finished already")
    with console.pieces("reproducing", missing) as show:

        def tell(cells_done: CellsDone) -> None:
            finished = cells_done.finished
            text = f"{finished.cell.key}, {finished.seconds:.1f} s"
            show(text, cells_done.seconds_left)

        try:
            return run_cells(cells, path, jobs=jobs, progress=tell)
        except KeyboardInterrupt:
            console.note(
                f"stopped; finished cells are kept in {path}, and the same command "
                "continues."
            )
            raise Interrupted from None


def page_command(options: argparse.Namespace) -> str:
    """Return the command that makes the page, for the page itself."""
    words = ["isoproj", "reproduce", "--full" if options.full else "--quick"]
    words += ["--only", *options.only] if options.only else []
    return " ".join([*words, "-o", Path(options.output).as_posix()])


def _publish(
    options: argparse.Namespace,
    experiments: tuple[Experiment, ...],
    records: Records,
    console: Console,
) -> None:
    """Write records, figures and page; print the verdicts."""
    folder = Path(options.output)
    here = records.within(cell.key for cell in in_order(experiments))
    if not options.report:
        records.write(folder / RECORDS)
    figures: list[Path] = []
    if find_spec("matplotlib") is None:
        console.warn("figures are left out; pip install 'isoproj[plot]' adds them.")
    else:
        drawn = draw_all(here, folder)
        figures = [path for paths in drawn.values() for path in paths]
    page = _page_of(folder)
    beside = folder.name if figures else None
    text = render_page(records, experiments, page_command(options), beside)
    content = text.encode()
    written = saved(console, str(page), lambda path: write_atomically(path, content))
    found = verdicts(here)
    rows = [[v.claim.name, str(v.outcome), str(v.n_cells), v.measured] for v in found]
    console.table(["claim", "verdict", "cells", "measured"], rows)
    console.say(f"wrote {written}")
    console.tell(
        payloads.Reproduce(
            folder=os.fspath(folder),
            page=written,
            figures=[os.fspath(path) for path in figures],
            experiments=_counts(experiments, records),
            verdicts=[_told(verdict) for verdict in found],
        )
    )


def _page_of(folder: Path) -> Path:
    """Return the file of the page about the records of a folder."""
    return folder.with_name(f"{folder.name}.md")


def _counts(
    experiments: tuple[Experiment, ...], records: Records
) -> list[payloads.ExperimentCount]:
    """Return how many cells every experiment has, and how many are finished."""
    return [
        payloads.ExperimentCount(
            name=experiment.name,
            title=experiment.title,
            cells=len(experiment.cells()),
            finished=sum(c.key in records.cells for c in experiment.cells()),
        )
        for experiment in experiments
    ]


def _told(verdict: Verdict) -> payloads.Verdict:
    return payloads.Verdict.of(
        verdict,
        claim=verdict.claim.name,
        statement=verdict.claim.statement,
        tolerance=verdict.claim.tolerance,
    )
