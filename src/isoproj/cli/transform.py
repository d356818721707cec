"""``isoproj transform``: project a file of points with a model."""

from __future__ import annotations

import argparse
import io
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isoproj.cli import payloads
from isoproj.cli.console import Console
from isoproj.cli.errors import Trouble
from isoproj.cli.models import load_model, options_data
from isoproj.files.formats import Format
from isoproj.files.write.writing import (
    Blocks,
    check_output,
    output_format,
    write_blocks,
)
from isoproj.numerics.arrays import Rows, is_sparse

__all__ = ["transform"]

# Numbers per block of rows: 32 megabytes in float64.
_BLOCK = 2**22


def transform(options: argparse.Namespace, console: Console) -> None:
    """Project a file of points and write the result."""
    to_pipe = options.output == "-"
    if to_pipe:
        _check_pipe(console)
    else:
        output_format(options.output)
        check_output(options.output, inputs=_inputs(options), force=options.force)
    model = load_model(options.model)
    if model.estimator is None:
        msg = f"{options.model} is a bare certificate. Name the model to project with."
        raise Trouble(msg)
    data = options_data(options, min_rows=1)
    points = model.check_fits(data)
    blocks = _blocks(model.estimator, points)
    if to_pipe:
        _write_pipe(blocks)
        return
    names = [str(n) for n in model.estimator.get_feature_names_out()]
    format_ = write_blocks(
        options.output,
        blocks,
        names=names,
        inputs=_inputs(options),
        force=options.force,
    )
    if format_ is Format.FVECS and blocks.dtype != np.float32:
        console.warn(f"{options.output} holds float32; the projection was float64.")
    n_points, k = blocks.shape
    console.say(f"{options.output}: {n_points:,} points in {k} dimensions")
    output = payloads.Projected(
        name=options.output,
        format=format_.value,
        n_points=n_points,
        n_components=k,
        dtype=str(blocks.dtype),
    )
    console.tell(
        payloads.Transform(
            model=options.model, data=payloads.Data.of(data), output=output
        )
    )


def _inputs(options: argparse.Namespace) -> list[str]:
    return [options.model, options.data, options.data.partition(":")[0]]


def _check_pipe(console: Console) -> None:
    if console.json:
        msg = "--json and -o - both want standard output. Name a file with -o."
        raise Trouble(msg)
    if sys.stdout.isatty():
        msg = "-o - writes binary .npy, and this is a terminal. Redirect it."
        raise Trouble(msg)


def _blocks(estimator: Any, points: Rows) -> Blocks:  # noqa: ANN401 - any of ours
    """Project block by block, so that a mapped file need never fit in memory."""
    n_points, n_features = points.shape
    step = max(1, _BLOCK // n_features)
    first = _project(estimator, points[:step])

    def parts() -> Iterator[NDArray[Any]]:
        yield first
        for start in range(step, n_points, step):
            yield _project(estimator, points[start : start + step])

    shape = (n_points, int(first.shape[1]))
    return Blocks(shape=shape, dtype=first.dtype, parts=parts())


def _project(estimator: Any, rows: Rows) -> NDArray[Any]:  # noqa: ANN401
    with warnings.catch_warnings():
        # Names have been compared already, in better words.
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        block = rows if is_sparse(rows) else np.asarray(rows)
        return np.asarray(estimator.transform(block))


def _write_pipe(blocks: Blocks) -> None:
    head = io.BytesIO()
    shape: Any = blocks.shape
    np.lib.format.write_array_header_1_0(
        head,
        {
            "descr": np.lib.format.dtype_to_descr(blocks.dtype),
            "fortran_order": False,
            "shape": shape,
        },
    )
    out = sys.stdout.buffer
    out.write(head.getvalue())
    for part in blocks.parts:
        out.write(np.ascontiguousarray(part).data)
    out.flush()
