"""Run the experiments of the paper and judge its claims: ``python -m paper``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from isoproj.exceptions import IsoprojError
from isoproj.numerics.container import check_writable, write_atomically
from paper.claims import verdicts
from paper.datasets import MissingDataError, load
from paper.figures import draw_all
from paper.page import render_page
from paper.records import Records
from paper.runner import CellsDone, run_cells
from paper.table import Experiment, chosen, in_order

# Name of the file with the records, in the output folder.
RECORDS = "records.jsonl"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the missing cells; make page, figures and verdicts from all records.

    Returns 0 done, 2 bad usage or input, 130 stopped.
    """
    options = _parser().parse_args(arguments)
    try:
        _reproduce(options)
    except (IsoprojError, ValueError, OSError) as error:
        print(f"paper: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the same command goes on with the other cells", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m paper", description=__doc__)
    add = parser.add_argument
    add("--list", action="store_true", help="list the experiments and run nothing")
    add(
        "--only",
        metavar="NAME",
        nargs="+",
        default=[],
        help="run only these experiments, for example figure1 or table1",
    )
    add(
        "--full",
        action="store_true",
        help="all samples and five seeds, as in the paper: hours; without it, small "
        "samples and two seeds",
    )
    add(
        "-o",
        "--output",
        metavar="FOLDER",
        default="reproduced",
        help="folder for records and figures; the page is FOLDER.md (default "
        "%(default)s). Finished cells in it are kept",
    )
    add(
        "--report",
        metavar="RECORDS",
        help="run nothing; make page and figures from this file, .jsonl or .jsonl.gz",
    )
    add(
        "--jobs",
        metavar="N",
        type=int,
        default=os.cpu_count() or 1,
        help="cells to run at once, one thread each (default: one a core)",
    )
    add("--offline", action="store_true", help="do not download data that is missing")
    return parser


def _reproduce(options: argparse.Namespace) -> None:
    """Do what the options ask for."""
    experiments = chosen(options.only, quick=not options.full)
    if options.list:
        for experiment in experiments:
            count = len(experiment.cells())
            print(f"{experiment.name:14}{count:5} cells  {experiment.title}")
        return
    if options.jobs < 1:
        msg = f"--jobs must be at least 1; got {options.jobs}. Leave it out."
        raise ValueError(msg)
    folder = Path(options.output)
    if options.report:
        if not Path(options.report).is_file():
            msg = f"{options.report} must hold records; there are none. Run first."
            raise ValueError(msg)
        records = Records.read(options.report)
        experiments = _as_recorded(experiments, records)
    else:
        experiments = _with_available_data(experiments, offline=options.offline)
        if find_spec("scs") is None:
            _note("SDP+DR by SCS is left out; pip install 'isoproj[sdp]' adds it.")
        folder.mkdir(parents=True, exist_ok=True)
        check_writable(folder / RECORDS)
        check_writable(_page_of(folder))
        records = _run(experiments, folder / RECORDS, options.jobs)
    _publish(options, experiments, records)


def _note(text: str) -> None:
    """Print a line on standard error."""
    print(text, file=sys.stderr, flush=True)


def _with_available_data(
    experiments: tuple[Experiment, ...], *, offline: bool
) -> tuple[Experiment, ...]:
    """Return the experiments whose data are available, with digits instead of MNIST."""
    wanted = {s.data for experiment in experiments for s in experiment.subjects}
    if "mnist" in wanted and not _is_available("mnist", offline=offline):
        _note("scikit-learn's bundled 8 x 8 digits stand in for MNIST.")
        experiments = _on_digits(experiments)
    if "news" in wanted and not _is_available("news", offline=offline):
        _note("The experiments on 20 Newsgroups are left out.")
        experiments = _without_news(experiments)
    left = tuple(e for e in experiments if e.cells())
    if not left:
        msg = (
            "none of these experiments can run without its data. Download the data "
            "named above."
        )
        raise ValueError(msg)
    return left


def _is_available(name: str, *, offline: bool) -> bool:
    """Return whether a data set is stored or can be downloaded."""
    try:
        load(name, offline=offline)
    except MissingDataError as error:
        _note(str(error))
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


def _run(experiments: tuple[Experiment, ...], path: Path, jobs: int) -> Records:
    """Run the cells that have no record yet, and tell of each."""
    cells = in_order(experiments)
    missing = len(Records.read(path).lacking(cells))
    _note(f"{len(cells) - missing} of {len(cells)} cells are finished already")

    def tell(done: CellsDone) -> None:
        finished, minutes = done.finished, done.seconds_left / 60.0
        _note(
            f"{done.done} of {done.total}: {finished.cell.key}, "
            f"{finished.seconds:.1f} s; about {minutes:.0f} min left"
        )

    return run_cells(cells, path, jobs=jobs, progress=tell)


def page_command(options: argparse.Namespace) -> str:
    """Return the command that makes the page, for the page itself."""
    words = ["python -m paper", *(["--full"] if options.full else [])]
    words += ["--only", *options.only] if options.only else []
    words += ["--report", options.report] if options.report else []
    return " ".join([*words, "-o", Path(options.output).as_posix()])


def _publish(
    options: argparse.Namespace, experiments: tuple[Experiment, ...], records: Records
) -> None:
    """Write records, figures and page; print the verdicts."""
    folder = Path(options.output)
    here = records.within(cell.key for cell in in_order(experiments))
    if not options.report:
        records.write(folder / RECORDS)
    has_figures = find_spec("matplotlib") is not None
    if has_figures:
        draw_all(here, folder)
    else:
        _note("Figures are left out; pip install 'isoproj[plot]' adds them.")
    page = _page_of(folder)
    beside = folder.name if has_figures else None
    text = render_page(records, experiments, page_command(options), beside)
    write_atomically(page, text.encode())
    for verdict in verdicts(here):
        print(f"{verdict.claim.name}: {verdict.outcome} ({verdict.n_cells} cells)")
        print(f"    {verdict.measured}")
    print(f"wrote {page}")


def _page_of(folder: Path) -> Path:
    """Return the file of the page about the records of a folder."""
    return folder.with_name(f"{folder.name}.md")


if __name__ == "__main__":
    sys.exit(main())
