"""``isoproj plan``: how many candidates a search must fetch, and what to store."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from isoproj.cli.console import Console
from isoproj.cli.errors import ClaimFailed, UsageError
from isoproj.cli.models import load_model, map_of, options_data, read_queries
from isoproj.cli.outputs import check_outputs, save_plot, saved
from isoproj.cli.payloads import Json, told, told_data
from isoproj.comparison.choosing import choose, fitted_maps
from isoproj.files.read.reading import DataFile
from isoproj.files.read.sources import split_name
from isoproj.files.write.writing import output_format, write_points
from isoproj.numerics.arrays import Rows
from isoproj.numerics.rounding import at_least
from isoproj.numerics.spectral import Foreign
from isoproj.search.plan import Question, SearchPlan

# Where the number of candidates is set.
SYSTEMS = {
    "faiss": "faiss, IndexRefineFlat",
    "qdrant": "Qdrant, prefetch or quantisation",
    "pgvector": "pgvector, inner query",
    "lancedb": "LanceDB, search or index",
    "sqlite-vec": "sqlite-vec, inner query",
    "elasticsearch": "Elasticsearch, rescore_vector",
    "opensearch": "OpenSearch, rescore",
}


def plan(options: argparse.Namespace, console: Console) -> None:
    """Count the candidates of maps, or choose the cheapest reduced vectors."""
    check_outputs(options, options.output, plot=options.plot)
    if options.output is not None:
        output_format(options.output)
    _check_given(options)
    data = options_data(options, min_rows=2)
    console.note(str(data))
    queries = read_queries(options, data)
    if options.recall is not None:
        _choose(options, console, data, queries)
    else:
        _plan(options, console, data, queries)


def _check_given(options: argparse.Namespace) -> None:
    """Raise UsageError unless every option that is given has an effect."""
    is_count, has_maps = options.recall is None, bool(options.maps)
    if is_count and not has_maps:
        msg = "plan needs a map before DATA, or --recall R to choose one. Add one."
        raise UsageError(msg)
    idle = ["plot", "output"] * is_count + ["n_components", "time_limit"] * has_maps
    # A share is given if it is not the default.
    share = ["share"] * (options.share != 1.0)
    idle += ["score", "queries_only", *share] * (not is_count)
    for name in filter(vars(options).get, idle):
        msg = (
            f"--{name.replace('_', '-')} has no effect here. A choice (--recall) takes "
            "--plot and --output, and without maps --n-components and --time-limit; "
            "plans of maps take --score, --share and --queries-only. Leave it out."
        )
        raise UsageError(msg)


def _plan(
    options: argparse.Namespace, console: Console, data: DataFile, queries: Rows | None
) -> None:
    """Count for every map, side by side."""
    question = Question(
        data.points,
        options.n_neighbors,
        queries=queries,
        metric=options.metric,
        stored=not options.queries_only,
    )
    plans = {}
    with console.progress("searching"):
        for name in options.maps:
            plans[name] = question.plan(
                _map(name, data, options),
                orientation="rows",
                score=options.score,
                confidence=options.confidence,
                share=options.share,
            )
    if len(plans) == 1:
        found = next(iter(plans.values()))
        console.say(str(found))
        _say_settings(console, found, found.new_query or found.every_row)
    else:
        names = next(iter(plans.values()))._table()[0]
        cells = [[name, *row] for name, p in plans.items() for row in p._table()[1]]
        console.table(["map", *names], cells)
    holds, allowed = True, options.at_most
    for name, found in plans.items() if allowed is not None else ():
        for line in _above(found, allowed):
            console.say(f"FAILS: {name}: {line}")
            holds = False
    if allowed is not None and holds:
        console.say(f"holds: at most {allowed:,} candidates")
    told_plans = [_told(name, found) for name, found in plans.items()]
    console.tell(
        "plan maps",
        data=told_data(data),
        queries=options.queries,
        at_most=allowed,
        plans=told_plans,
        holds=holds,
    )
    if not holds:
        raise ClaimFailed


def _map(name: str, data: DataFile, options: argparse.Namespace) -> Foreign:
    """Return the model of a file, which knows its certificate, or a matrix."""
    if split_name(name)[0].suffix.lower() == ".isoproj":
        model = load_model(name)
        model.check_fits(data)
        if model.estimator is not None:
            return model.estimator
    return map_of(name, data, options.orientation).components


def _above(found: SearchPlan, allowed: int) -> Iterator[str]:
    """Yield what needs more candidates than allowed, in words."""
    needed, hardest = found.row_candidates, found.hardest_rows
    if needed is not None and hardest is not None and needed[hardest[0]] > allowed:
        rows = [str(i) for i in hardest if needed[i] > allowed]
        many = int((needed > allowed).sum())
        yield (
            f"{many:,} stored rows need more than {allowed:,} candidates, up to "
            f"{found.every_row:,}: rows {', '.join(rows)}"
            + (", ..." if many > len(rows) else "")
        )
    if found.new_query is not None and found.new_query > allowed:
        yield f"a new query needs {found.new_query:,}, allowed {allowed:,}"


def _say_settings(console: Console, found: SearchPlan, number: int | None) -> None:
    """Print a number of candidates as each system is told it."""
    n, whom = found.n_neighbors, f"new queries: ask for {found.n_neighbors}"
    if found.query_ranks is None:
        whom = f"stored rows: ask for {n + 1} and drop the row itself"
    rows = [
        [SYSTEMS[name], ", ".join(f"{word} = {value}" for word, value in its.items())]
        for name, its in found.settings(candidates=number).items()
    ]
    console.say(f"Settings for {number:,} candidates of {whom}.")
    console.table([], rows)


def _told(name: str, found: SearchPlan, number: int | None = None) -> Json:
    """Return a plan for JSON, with settings for a number of candidates."""
    recall, needed = found.recall(found.n_neighbors), found.row_candidates
    return told(
        "SearchPlan",
        found,
        map=name,
        row_candidates=needed,
        recall_rows=recall.rows,
        recall_queries=recall.queries,
        settings=found.settings(candidates=number),
    )


def _choose(
    options: argparse.Namespace, console: Console, data: DataFile, queries: Rows | None
) -> None:
    """Measure reduced vectors of every kind and tell the cheapest."""
    maps: Any = fitted_maps(options.n_components, options.time_limit, options.seed)
    if options.maps:
        read = [map_of(name, data, options.orientation) for name in options.maps]
        maps = {one.name: one.components for one in read}
    with console.progress("searching"):
        found = choose(
            data.points,
            options.recall,
            options.n_neighbors,
            queries=queries,
            metric=options.metric,
            maps=maps,
            at_most=options.at_most,
            confidence=options.confidence,
        )
    names, rows = found._table()
    console.table(names, rows)
    best = found.best
    console.say(
        f"Cheapest (*): {best.method}, k = {best.k}, {best.format}, {best.score}: "
        f"{best.n_bytes:,} bytes a vector, {best.candidates:,} candidates for "
        f"{options.recall:g} of the neighbours on average."
    )
    judged = found.plan.recall(best.candidates).queries or 0.0
    console.say(
        f"Queries that had no part in the choice find at least {at_least(judged)} "
        "with as many."
    )
    console.say(str(found.plan))
    _say_settings(console, found.plan, best.candidates)
    save_plot(console, options.plot, found.plot)
    if options.output is not None:
        saved(console, options.output, lambda p: write_points(p, found.components))
    console.tell(
        "plan choice",
        data=told_data(data),
        queries=options.queries,
        recall=options.recall,
        options=[told("Option", option) for option in found.options],
        best=told("Option", best),
        judged=judged,
        plan=_told(best.method, found.plan, best.candidates),
    )
