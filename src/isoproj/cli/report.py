"""``isoproj report``: what a model does to its data, for people to look at."""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path
from typing import Literal

from isoproj.cli import payloads
from isoproj.cli.console import Console
from isoproj.cli.errors import ClaimFailed, Trouble
from isoproj.cli.models import (
    load_model,
    options_data,
    read_labels,
)
from isoproj.estimators.curves import Frontier, guarantee_frontier
from isoproj.exceptions import ClaimError
from isoproj.files.read.reading import DataFile, read_points
from isoproj.files.write.writing import check_output
from isoproj.numerics.arrays import Rows
from isoproj.proof.certificate import Certificate
from isoproj.reporting.document import SUFFIXES
from isoproj.reporting.document import report as make_report

__all__ = ["report"]


def report(options: argparse.Namespace, console: Console) -> None:
    """Measure a model on its data and write the report."""
    start = time.perf_counter()
    kind = _checked_format(options)
    shape = _image_shape(options.image_shape)
    model = load_model(options.model)
    data = options_data(options, min_rows=2)
    console.note(str(data))
    points = model.check_fits(data)
    heldout = _heldout(options)
    try:
        made = make_report(
            model.certificate if model.estimator is None else model.estimator,
            points,
            heldout=None if heldout is None else model.check_fits(heldout),
            labels=read_labels(options.labels, data),
            image_shape=shape,
            frontier=_frontier(options, model.certificate, points),
            max_pairs=options.max_pairs,
            model_name=options.model,
            data_name=data.name,
            heldout_name=options.heldout,
        )
    except ClaimError as error:
        console.note(f"isoproj report: {error}")
        raise ClaimFailed from None
    made.save(options.output)
    console.say(f"{options.output}: {made}")
    facts = made.to_dict()
    output = payloads.ReportFile(
        name=options.output,
        format=kind,
        n_bytes=Path(options.output).stat().st_size,
    )
    console.tell(
        payloads.Report(
            model=options.model,
            data=payloads.Data.of(data),
            output=output,
            seconds=time.perf_counter() - start,
            sentence=facts["sentence"],
            distortion=facts["certificate"]["distortion"],
            lower_bound=facts["certificate"]["lower_bound"],
            recomputed=facts["claims"]["all_pairs"],
        )
    )


def _checked_format(options: argparse.Namespace) -> Literal["html", "markdown", "json"]:
    """Return the format of the report, after a check of the options."""
    kind = SUFFIXES.get(Path(options.output).suffix.lower())
    if kind is None:
        msg = f"-o must end in .html, .md or .json; got {options.output}. Use .html."
        raise Trouble(msg)
    if options.max_pairs < 1:
        msg = f"--max-pairs must be at least 1; got {options.max_pairs}. Leave it out."
        raise Trouble(msg)
    if options.frontier is not None and options.frontier < 2:
        msg = f"--frontier must be at least 2 caps; got {options.frontier}. Try 7."
        raise Trouble(msg)
    inputs = [options.model, options.data, options.data.partition(":")[0]]
    inputs += [name for name in (options.heldout, options.labels) if name]
    check_output(options.output, inputs=inputs, force=options.force)
    return kind


def _frontier(
    options: argparse.Namespace, certificate: Certificate, points: Rows
) -> Frontier | None:
    if options.frontier is None:
        return None
    guarantee = certificate.guarantee
    return guarantee_frontier(
        points,
        certificate.n_components,
        options.frontier,
        objective="variance" if guarantee is None else guarantee.objective.value,
        pairs=certificate.pairs,
    )


def _heldout(options: argparse.Namespace) -> DataFile | None:
    if options.heldout is None:
        return None
    return read_points(
        options.heldout,
        array=options.array,
        columns=options.columns,
        header=options.header,
        min_rows=2,
    )


def _image_shape(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    sides = re.fullmatch(r"(\d{1,6})[xX](\d{1,6})", text)
    if sides is None:
        msg = f"--image-shape must look like 28x28; got {text!r}. Height comes first."
        raise Trouble(msg)
    return int(sides[1]), int(sides[2])
