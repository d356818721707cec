"""``isoproj report``: write a report about a model and its data."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from isoproj.cli.console import Console
from isoproj.cli.errors import ClaimFailed
from isoproj.cli.models import load_model, map_of, options_data, read_labels
from isoproj.cli.outputs import check_outputs, saved
from isoproj.cli.payloads import told, told_data
from isoproj.estimators.curves import Frontier, guarantee_frontier
from isoproj.exceptions import ClaimError
from isoproj.numerics.arrays import Rows
from isoproj.proof.certificate import Certificate
from isoproj.reporting.document import format_of
from isoproj.reporting.document import report as make_report


def report(options: argparse.Namespace, console: Console) -> None:
    """Verify a model on its data, and write the report."""
    start = time.perf_counter()
    kind = format_of(options.output)
    check_outputs(options, options.output)
    model = load_model(options.model)
    data = options_data(options, min_rows=2)
    console.note(str(data))
    points = model.check_fits(data)
    heldout = None
    if options.heldout is not None:
        found = options_data(options, min_rows=2, name=options.heldout)
        heldout = model.check_fits(found)
    try:
        made = make_report(
            model.certificate if model.estimator is None else model.estimator,
            points,
            heldout=heldout,
            labels=read_labels(options.labels, data),
            image_shape=options.image_shape,
            frontier=_frontier(options, model.certificate, points),
            maps={name: map_of(name, data).components for name in options.maps},
            recall=options.recall,
            metric=options.metric,
            max_pairs=options.max_pairs,
            model_name=options.model,
            data_name=data.name,
            heldout_name=options.heldout,
        )
    except ClaimError as error:
        console.note(f"isoproj report: {error}")
        raise ClaimFailed from None
    written = saved(console, options.output, made.save)
    console.say(f"{written}: {made}")
    facts = made.to_dict()
    console.tell(
        "report",
        model=options.model,
        data=told_data(data),
        output=told(
            "ReportFile",
            name=written,
            format=kind,
            n_bytes=Path(written).stat().st_size,
        ),
        seconds=time.perf_counter() - start,
        sentence=facts["sentence"],
        distortion=facts["certificate"]["distortion"],
        lower_bound=facts["certificate"]["lower_bound"],
        recomputed=facts["claims"]["all_pairs"],
    )


def _frontier(
    options: argparse.Namespace, certificate: Certificate, points: Rows
) -> Frontier | None:
    """Return the frontier that the report shows, if the user asked for one."""
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
