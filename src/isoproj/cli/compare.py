"""``isoproj compare``: methods side by side, scored by one referee."""

from __future__ import annotations

import argparse
from typing import Any

from isoproj.cli import payloads
from isoproj.cli.console import Console
from isoproj.cli.errors import Trouble
from isoproj.cli.models import options_data
from isoproj.files.write.writing import check_output
from isoproj.numerics.container import write_atomically
from isoproj.plot.axes import save_axes
from isoproj.reproduction.compare import DEFAULT_METHODS, Record
from isoproj.reproduction.compare import compare as run_comparison

__all__ = ["compare"]


def compare(options: argparse.Namespace, console: Console) -> None:
    """Fit every method for every k and seed; print a table, keep records and plot."""
    for name in (options.output, options.plot):
        if name is not None:
            check_output(name, inputs=[options.data], force=options.force)
    data = options_data(options, min_rows=2)
    n_features = data.points.shape[1]
    for k in options.n_components:
        if not 1 <= k <= n_features:
            msg = (
                f"-k must be between 1 and the {n_features} features of {data.name}; "
                f"got {k}. Choose values in that range."
            )
            raise Trouble(msg)
    console.note(str(data))
    comparison = run_comparison(
        data.points,
        options.methods or DEFAULT_METHODS,
        options.n_components,
        options.seeds,
        options.time_limit,
        progress=lambda record: console.note(_line(record)),
    )
    if options.output is not None:
        write_atomically(options.output, comparison.json_lines().encode())
    if options.plot is not None:
        save_axes(comparison.plot(), options.plot)
    console.say(comparison.table(options.metric))
    records: list[Any] = [dict(record) for record in comparison.records]
    console.tell(payloads.Compare(data=payloads.Data.of(data), records=records))


def _line(record: Record) -> str:
    where = f"{record['method']}, k = {record['k']}, seed {record['seed']}"
    if record.get("error"):
        return f"{where}: failed: {record['error']}"
    return f"{where}: {record['contracted']:.4f} in {record['seconds']:.2f} s"
