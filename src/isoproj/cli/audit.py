"""``isoproj audit`` and ``isoproj verify``: measure a map; check a certificate."""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from isoproj.cli import payloads
from isoproj.cli.console import Console
from isoproj.cli.errors import ClaimFailed, UsageError
from isoproj.cli.models import (
    check_features,
    load_model,
    memory_limit,
    options_data,
    pair_options,
    read_labels,
)
from isoproj.engines.base import walking
from isoproj.files.read.reading import DataFile, holds_model, read_points
from isoproj.numerics.arrays import as_dense
from isoproj.pairs.rule import PairRule
from isoproj.proof.audit import AuditResult
from isoproj.proof.audit import audit as measure
from isoproj.proof.verify import check_claims

__all__ = ["audit", "verify"]


def audit(options: argparse.Namespace, console: Console) -> None:
    """Measure a model or a matrix on all pairs; fail if it loses too much."""
    if options.worst < 1:
        msg = f"--worst must be at least 1; got {options.worst}. Ask for one pair."
        raise UsageError(msg)
    components, usual = _map_of(options.model)
    data = options_data(options, min_rows=2)
    check_features(data, np.shape(components)[1], options.model)
    console.note(str(data))
    labels = read_labels(options.labels, data)
    pairs = replace(usual.elsewhere(labels), labels=labels, **pair_options(options))
    with console.pairs("auditing") as progress:
        result = measure(
            data.points,
            components,
            pairs=pairs,
            n_worst=options.worst,
            progress=progress,
            memory_limit=memory_limit(options),
        )
    allowed = options.max_distortion
    holds = allowed is None or result.distortion <= allowed
    _show(console, result, allowed, holds=holds)
    console.tell(_payload(options, data, result, holds=holds))
    if not holds:
        raise ClaimFailed


def verify(options: argparse.Namespace, console: Console) -> None:
    """Recompute every claim of a model from the data; fail if one does not hold."""
    model = load_model(options.model)
    data = options_data(options, min_rows=2)
    console.note(str(data))
    with console.pairs("verifying") as progress, walking(progress):
        claims = check_claims(
            model.certificate if model.estimator is None else model.estimator,
            data.points,
            memory_limit=memory_limit(options),
            names=data.names,
        )
    verified = all(claim.holds for claim in claims)
    rows = [
        [claim.name, claim.stated, claim.found, "pass" if claim.holds else "FAIL"]
        for claim in claims
    ]
    console.table(["claim", "stated", "recomputed", ""], rows)
    if verified:
        console.say(f"verified: {model.certificate}")
    else:
        console.say("NOT verified: do not rely on this model for this data.")
    console.tell(
        payloads.Verify(
            model=options.model,
            data=payloads.Data.of(data),
            verified=verified,
            claims=claims,
        )
    )
    if not verified:
        raise ClaimFailed


def _map_of(path: str) -> tuple[ArrayLike, PairRule]:
    """Return the linear map of a model or matrix file, and the pairs that count."""
    if holds_model(path):
        certificate = load_model(path).certificate
        return certificate.components, certificate.pairs
    return as_dense(read_points(path).points), PairRule()


def _show(
    console: Console, result: AuditResult, allowed: float | None, *, holds: bool
) -> None:
    """Print the result of an audit."""
    console.say(str(result))
    rows = [
        [f"{i} and {j}", f"{loss:.6f}"]
        for (i, j), loss in zip(
            result.worst_pairs.tolist(), result.worst_distortions.tolist(), strict=True
        )
    ]
    console.table(["worst pairs", "lose"], rows)
    if allowed is not None:
        word = "holds" if holds else "FAILS"
        console.say(f"{word}: distortion {result.distortion:.6f}, allowed {allowed}")


def _payload(
    options: argparse.Namespace, data: DataFile, result: AuditResult, *, holds: bool
) -> payloads.Audit:
    """Return the JSON result of an audit."""
    # The histogram of an audit has many bins; these are enough for a plot.
    low = float(result.histogram[1][0])
    counts, edges = result.coarse_histogram(128, low=low)
    return payloads.Audit(
        model=options.model,
        data=payloads.Data.of(data),
        distortion=result.distortion,
        stretch=result.stretch,
        mean=result.mean,
        quantiles=payloads.quantiles_of(result),
        worst_pairs=result.worst_pairs.tolist(),
        worst_distortions=result.worst_distortions.tolist(),
        n_pairs=result.n_pairs,
        n_identical=result.n_identical,
        n_close=result.n_close,
        histogram=payloads.Histogram(counts=counts.tolist(), edges=edges.tolist()),
        max_distortion=options.max_distortion,
        holds=holds,
    )
