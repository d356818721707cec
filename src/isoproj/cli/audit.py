"""``isoproj audit`` and ``isoproj verify``: measure a map; check a certificate."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace

from isoproj.cli import models
from isoproj.cli.console import Console
from isoproj.cli.errors import ClaimFailed, UsageError
from isoproj.cli.payloads import told, told_data, told_or_null
from isoproj.numerics.rounding import paired
from isoproj.numerics.spectral import Array, Indices
from isoproj.proof.audit import AuditResult
from isoproj.proof.audit import audit as measure
from isoproj.proof.verify import check_claims


@dataclass(frozen=True, slots=True)
class _Gate:
    """A claim that the caller asked to hold, with the rows that make it what it is."""

    name: str
    allowed: float
    found: float
    holds: bool
    rows: Sequence[Sequence[int]]

    def line(self, origin: int | None) -> str:
        """Return the claim in one line, with its rows if it fails."""
        word = "holds" if self.holds else "FAILS"
        named = [paired(r, origin) if r[1:] else str(*r) for r in self.rows]
        shown = "; ".join(named)
        rows = "" if self.holds or not shown else f", rows {shown}"
        return f"{word}: {self.name} {self.found:.6f}, allowed {self.allowed}{rows}"


def audit(options: argparse.Namespace, console: Console) -> None:
    """Measure any linear map on all pairs; fail if a claim asked for does not hold."""
    recall = options.recall
    if recall is None and options.recall_at_least is not None:
        # Neighbours that --recall-at-least is about, unless --recall says otherwise.
        recall = [10]
    if recall is None and options.queries is not None:
        msg = "--queries needs --recall or --recall-at-least. Add --recall 10."
        raise UsageError(msg)
    models.check_map_name(options.model)
    data = models.options_data(options, min_rows=2)
    read = models.map_of(options.model, data, options.orientation)
    console.note(str(data))
    queries = models.read_queries(options, data)
    labels = models.read_labels(options.labels, data)
    usual = read.pairs.elsewhere(labels)
    pairs = replace(usual, labels=labels, **models.pair_options(options))
    with console.progress("auditing"):
        result, *parts = [
            measure(
                data.points,
                read.components[:k],
                orientation="rows",
                pairs=pairs,
                n_worst=options.worst,
                recall=recall,
                metric=options.metric,
                queries=queries,
                memory_limit=models.memory_limit(options),
            )
            for k in (None, *read.prefixes)
        ]
    prefixes = dict(zip(read.prefixes, parts, strict=True))
    claims = _claims(options, result)
    _show(console, result, claims, prefixes)
    found = told_or_null("NeighborsFound", result.neighbors, queries=options.queries)
    # The histogram of an audit has many bins; these are enough for a plot.
    counts, edges = result.coarse_histogram(128, low=float(result.histogram[1][0]))
    console.tell(
        "audit",
        result,
        model=options.model,
        data=told_data(data),
        histogram=told("Histogram", counts=counts, edges=edges),
        neighbors=found,
        max_distortion=options.at_most,
        nested=[
            told("PrefixLosses", part, n_components=k) for k, part in prefixes.items()
        ],
        claims=claims,
        holds=all(claim.holds for claim in claims),
    )
    if not all(claim.holds for claim in claims):
        raise ClaimFailed


def verify(options: argparse.Namespace, console: Console) -> None:
    """Recompute every claim of a model from the data; fail if one does not hold."""
    model = models.load_model(options.model)
    data = models.options_data(options, min_rows=2)
    console.note(str(data))
    with console.progress("verifying"):
        claims = check_claims(
            model.certificate if model.estimator is None else model.estimator,
            data.points,
            memory_limit=models.memory_limit(options),
            names=data.names,
        )
    verified = all(claim.holds for claim in claims)
    rows = [
        [claim.title, claim.stated, claim.found, "pass" if claim.holds else "FAIL"]
        for claim in claims
    ]
    console.table(["claim", "stated", "recomputed", ""], rows)
    if verified:
        console.say(f"verified: {model.certificate}")
    else:
        console.say("NOT verified: do not rely on this model for this data.")
    console.tell(
        "verify",
        model=options.model,
        data=told_data(data),
        verified=verified,
        claims=claims,
    )
    if not verified:
        raise ClaimFailed


def _claims(options: argparse.Namespace, result: AuditResult) -> list[_Gate]:
    """Return the claims that the user asked for, with the rows that decide them."""
    claims, allowed, found = [], options.at_most, result.neighbors
    if allowed is not None:
        at_most = [("distortion", result.worst_distortions, result.worst_pairs)]
        if found is not None and not found.is_own and found.distortions.size:
            name = "distortion of neighbours of queries"
            at_most.append((name, found.distortions, found.distorted))
        for name, losses, pairs in at_most:
            largest = float(losses[0])
            holds = largest <= allowed
            rows = pairs[:1] if holds else pairs[losses > allowed]
            claims.append(_Gate(name, allowed, largest, holds, rows.tolist()))
    needed = options.recall_at_least
    if needed is not None and found is not None:
        for k, value in found.recall.items():
            queries = [[int(row)] for row in found.worst_queries(k, options.worst)]
            claims.append(
                _Gate(f"recall at {k}", needed, value, value >= needed, queries)
            )
    return claims


def _show(
    console: Console,
    result: AuditResult,
    claims: Sequence[_Gate],
    prefixes: dict[int, AuditResult],
) -> None:
    """Print the result of an audit."""
    console.say(str(result))
    if prefixes:
        asked = [f"recall at {k}" for k in result.recall]
        rows = [
            [
                f"first {k}",
                f"{part.distortion:.6f}",
                f"{part.mean:.6f}",
                *(f"{value:.4f}" for value in part.recall.values()),
            ]
            for k, part in prefixes.items()
        ]
        console.table(["dimensions", "worst pair loses", "mean", *asked], rows)
    worst = result.worst_pairs, result.worst_distortions
    _table(console, "worst pairs", *worst, result.origin)
    found = result.neighbors
    if found is not None:
        _table(console, "worst neighbours", found.distorted, found.distortions)
    for claim in claims:
        console.say(claim.line(result.origin))


def _table(
    console: Console,
    title: str,
    pairs: Indices,
    losses: Array,
    origin: int | None = None,
) -> None:
    """Print pairs with the share that they lose."""
    rows = [
        [paired(pair, origin), f"{loss:.6f}"]
        for pair, loss in zip(pairs.tolist(), losses.tolist(), strict=True)
    ]
    console.table([title, "lose"], rows)
