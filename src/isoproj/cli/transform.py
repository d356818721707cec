"""``isoproj transform``: project a file of points with a model."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isoproj.cli.console import Console
from isoproj.cli.errors import UsageError
from isoproj.cli.models import load_model, options_data
from isoproj.cli.outputs import check_outputs, saved
from isoproj.cli.payloads import told, told_data
from isoproj.files.formats import Format
from isoproj.files.read.sources import split_name
from isoproj.files.write import writing
from isoproj.files.write.anndata import write_anndata
from isoproj.numerics.arrays import Rows, is_sparse
from isoproj.numerics.rounding import counted
from isoproj.numerics.spectral import Fitted
from isoproj.numerics.storage import SLICE_BYTES, row_slices


def transform(options: argparse.Namespace, console: Console) -> None:
    """Project points and write them to a file, or to standard output as .npy."""
    to_pipe = options.output == "-"
    if to_pipe:
        _check_pipe(console)
    else:
        source = str(split_name(options.data)[0])
        format_ = writing.output_format(options.output, source)
        check_outputs(options, options.output)
    model = load_model(options.model)
    if model.estimator is None:
        msg = f"{options.model} must be a model; it is a bare certificate. Fit again."
        raise UsageError(msg)
    data = options_data(options, min_rows=1)
    points = model.check_fits(data)
    blocks = projected(model.estimator, points)
    if to_pipe:
        writing.write_npy(sys.stdout.buffer, blocks)
        sys.stdout.buffer.flush()
        return

    def write(path: str) -> None:
        # Blocks can be written once, and after a failure they are written elsewhere.
        fresh = projected(model.estimator, points)
        if writing.is_anndata_name(path):
            stated = model.certificate
            write_anndata(path, data.name, fresh, stated, chosen=data.chosen)
        else:
            names = [str(name) for name in model.estimator.get_feature_names_out()]
            writing.write_blocks(path, fresh, names=names)

    options.output = saved(console, options.output, write)
    if format_ is Format.FVECS and blocks.dtype != np.float32:
        console.warn(f"{options.output} holds float32; the projection was float64.")
    n_points, k = blocks.shape
    console.say(
        f"{options.output}: {counted(n_points, 'point')} in {counted(k, 'dimension')}"
    )
    output = told(
        "Projected",
        name=options.output,
        format=format_.value,
        n_points=n_points,
        n_components=k,
        dtype=str(blocks.dtype),
    )
    console.tell("transform", model=options.model, data=told_data(data), output=output)


def _check_pipe(console: Console) -> None:
    """Raise UsageError unless binary data can go to standard output."""
    if console.json:
        msg = "--json and -o - both want standard output. Name a file with -o."
        raise UsageError(msg)
    if sys.stdout.isatty():
        msg = "-o - writes binary .npy, and this is a terminal. Redirect it."
        raise UsageError(msg)


def projected(
    estimator: Fitted, points: Rows, *, slice_bytes: float = SLICE_BYTES
) -> writing.Blocks:
    """Return the projected points in blocks, so that they need not fit in memory."""
    first, *others = row_slices(points, slice_bytes=slice_bytes)
    head = _project(estimator, points[first])

    def parts() -> Iterator[NDArray[Any]]:
        yield head
        for rows in others:
            yield _project(estimator, points[rows])

    shape = (int(points.shape[0]), int(head.shape[1]))
    return writing.Blocks(shape=shape, dtype=head.dtype, parts=parts())


def _project(estimator: Fitted, rows: Rows) -> NDArray[Any]:
    """Project a block of rows."""
    with warnings.catch_warnings():
        # The names were compared before, with a better message.
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        block = rows if is_sparse(rows) else np.asarray(rows)
        return np.asarray(estimator.transform(block))
