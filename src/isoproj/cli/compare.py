"""``isoproj compare``: fit several methods and measure all of them alike."""

from __future__ import annotations

import argparse

from isoproj.cli.console import Console
from isoproj.cli.models import check_dimensions, map_of, options_data
from isoproj.cli.outputs import check_outputs, save_plot, saved
from isoproj.cli.payloads import told_data
from isoproj.comparison.compare import DEFAULT_METHODS
from isoproj.comparison.compare import compare as run_comparison
from isoproj.comparison.referee import Record
from isoproj.numerics.container import write_atomically
from isoproj.numerics.rounding import counted


def compare(options: argparse.Namespace, console: Console) -> None:
    """Fit every method for every k and seed; print a table, write records and plot."""
    check_outputs(options, options.output, plot=options.plot)
    data = options_data(options, min_rows=2)
    check_dimensions(options.n_components, data)
    console.note(str(data))
    comparison = run_comparison(
        data.points,
        options.methods or DEFAULT_METHODS,
        options.n_components,
        options.seeds,
        options.time_limit,
        maps={name: map_of(name, data).components for name in options.maps},
        progress=lambda record: console.note(_line(record)),
    )
    if options.output is not None:
        lines = comparison.json_lines().encode()
        path = saved(
            console, options.output, lambda path: write_atomically(path, lines)
        )
        console.note(f"wrote {path}: {counted(len(comparison.records), 'record')}")
    save_plot(console, options.plot, comparison.plot)
    console.say(comparison.table(options.metric))
    console.tell("compare", data=told_data(data), records=comparison.records)


def _line(record: Record) -> str:
    """Return the result of one fit as a line."""
    where = f"{record['method']}, k = {record['k']}, seed {record['seed']}"
    if record.get("error"):
        return f"{where}: failed: {record['error']}"
    took = "" if record["seconds"] is None else f" in {record['seconds']:.2f} s"
    return f"{where}: {record['contracted']:.4f}{took}"
