"""How many candidates a search by reduced vectors must fetch to miss nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

import isoproj
from isoproj.numerics.arrays import Rows, check_points, is_number, is_whole
from isoproj.numerics.maps import LinearMap, Orientation, linear_map
from isoproj.numerics.rounding import at_least, at_most, counted, trimmed
from isoproj.numerics.shown import Table, Tabular
from isoproj.numerics.spectral import Array, Indices
from isoproj.numerics.storage import Storage
from isoproj.pairs.full_scan import largest_ratio
from isoproj.pairs.nearness import Metric, Nearness, check_metric, check_queries
from isoproj.pairs.rows import first_copies
from isoproj.pairs.rule import PairKind
from isoproj.proof.bounds import data_fingerprint
from isoproj.proof.confidence import CONFIDENCE, conformal_rank, fewest_points
from isoproj.search.ranks import Needed, needed_rows, ranks_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Hardest rows that a plan names.
_NAMED = 10
# Rows that a system fetches at most.
_MOST = {"sqlite-vec": 4096, "elasticsearch": 10_000, "opensearch": 10_000}
# Reduced copies of a row that differ by less, relative to the largest, are copies.
_ROUNDING = 1e-5
Ranks = NDArray[np.int64]


class Recall(NamedTuple):
    """Mean share of the true neighbours that are found; None if not counted."""

    rows: float | None
    queries: float | None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SearchPlan(Tabular):
    """How many candidates find the true neighbours; exact, ties counted against it.

    Whoever fetches so many rows by the reduced vectors, and orders them again by the
    full vectors, returns the true neighbours.

    Parameters
    ----------
    n_rows, n_features, n_components : int
        Number of stored rows, and of the numbers in a full and in a reduced vector.
    n_neighbors : int
        Number of true neighbours that are looked for.
    metric, score : str
        How near full vectors are, and how near reduced vectors are.
    confidence : float
        Probability with which ``new_query`` suffices.
    share : float
        Share of the true neighbours that must be among the candidates.
    row_ranks : ndarray of shape (n_rows, n_neighbors) or None
        For every stored row, after how many candidates the first of its true
        neighbours is found for certain, the second, and so on. None if stored rows
        were not asked for.
    query_ranks : ndarray of shape (n_queries, n_neighbors) or None
        The same for every query; None without queries.
    ratio : float or None
        Without a look at the full vectors, the ``i``-th row returned to a stored row is
        at most ``1 / ratio`` times as far as its true ``i``-th neighbour, for every
        ``i``. None unless a certificate over all pairs of these rows stands behind the
        map, and both distances are Euclidean.

    See Also
    --------
    search_plan : Makes a plan.
    """

    n_rows: int
    n_features: int
    n_components: int
    n_neighbors: int
    metric: Metric
    score: Metric
    confidence: float
    share: float
    row_ranks: Ranks | None
    query_ranks: Ranks | None
    ratio: float | None

    @property
    def n_needed(self) -> int:
        """Number of true neighbours that must be among the candidates."""
        return max(1, math.ceil(round(self.share * self.n_neighbors, 9)))

    @property
    def row_candidates(self) -> Ranks | None:
        """Candidates that every stored row needs, shape (n_rows,)."""
        return self._candidates(self.row_ranks)

    @property
    def query_candidates(self) -> Ranks | None:
        """Candidates that every query needs, shape (n_queries,)."""
        return self._candidates(self.query_ranks)

    def _candidates(self, ranks: Ranks | None) -> Ranks | None:
        if ranks is None:
            return None
        return np.maximum(ranks[:, self.n_needed - 1], self.n_neighbors)

    @property
    def _level(self) -> str:
        return f"{trimmed(at_least(100.0 * self.confidence))} %"

    @property
    def every_row(self) -> int | None:
        """Candidates that suffice for every stored row, itself not counted."""
        needed = self.row_candidates
        return None if needed is None else int(needed.max())

    @property
    def hardest_rows(self) -> Indices | None:
        """Numbers of the stored rows that need most candidates, hardest first."""
        needed = self.row_candidates
        if needed is None:
            return None
        return np.argsort(-needed, kind="stable")[:_NAMED]

    @property
    def new_query(self) -> int | None:
        """Candidates that suffice for a new query with probability ``confidence``.

        The new query must be drawn like the queries of the plan. The probability is
        over these queries and the new one.
        """
        needed = self.query_candidates
        if needed is None:
            return None
        return int(np.sort(needed)[conformal_rank(needed.size, self.confidence) - 1])

    def recall(self, m: int) -> Recall:
        """Return the mean share of true neighbours found among ``m`` candidates.

        Parameters
        ----------
        m : int
            Number of rows that are fetched and ordered again by the full vectors. The
            row itself is not counted.

        Returns
        -------
        Recall
            Of stored rows, and of queries: what is found however ties fall.
        """
        both = (self.row_ranks, self.query_ranks)
        return Recall(*(None if r is None else float((r <= m).mean()) for r in both))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the share of neighbours found against candidates fetched.

        Parameters
        ----------
        ax : matplotlib Axes or None
            Where to draw; None makes a new figure.

        Returns
        -------
        matplotlib Axes
            The drawing of ``isoproj.plot.search_plan``.
        """
        return isoproj.plot.search_plan(self, ax=ax)

    def settings(
        self, *, stored: bool | None = None, candidates: int | None = None
    ) -> dict[str, dict[str, float]]:
        """Return the number of candidates in the words of several systems.

        The systems must search the reduced vectors exactly; the losses of an
        approximate index come on top. Their rounding in float32 can swap rows that
        nearly tie. The factors of Qdrant, LanceDB, Elasticsearch and OpenSearch are for
        codes that the system makes itself: plan with these, decoded, as ``reduced``.

        Parameters
        ----------
        stored : bool or None
            Whether queries are stored rows. Then the row itself comes back as well: ask
            for ``n_neighbors + 1`` rows and drop it. None means False if the plan has a
            number for new queries.
        candidates : int or None
            The number to be told, the row itself not counted; None means the planned
            one, ``every_row`` or ``new_query``.

        Returns
        -------
        dict of str to dict
            By system, the values of its parameters. A system that cannot fetch as many
            is left out: sqlite-vec ends at 4,096 rows, Elasticsearch at 10,000,
            OpenSearch at 10,000 and at a factor of 100.

        Raises
        ------
        ValueError
            If the plan has no number for such queries.
        """
        stored = self.query_ranks is None if stored is None else stored
        number = self.every_row if stored else self.new_query
        number = number if candidates is None else candidates
        if number is None:
            which = "stored rows" if stored else "new queries"
            msg = f"settings needs a plan for {which}; this one has none. Plan again."
            raise ValueError(msg)
        m, n = number + stored, self.n_neighbors + stored
        # Systems round the product of a factor and n; the half keeps it from below m.
        factor = math.ceil(1e4 * (m + 0.5) / n) / 1e4
        words: dict[str, dict[str, float]] = {
            "faiss": {"k_factor": factor},
            "qdrant": {"limit": m, "oversampling": factor},
            "pgvector": {"LIMIT": m},
            "lancedb": {"limit": m, "refine_factor": -(-m // n)},
            "sqlite-vec": {"k": m},
            "elasticsearch": {"oversample": factor},
            "opensearch": {"oversample_factor": factor},
        }
        if factor > 100.0:
            del words["opensearch"]
        return {name: its for name, its in words.items() if m <= _MOST.get(name, m)}

    def __str__(self) -> str:
        n, neighbors = self.n_neighbors, counted(self.n_neighbors, "neighbour")
        share = "all" if self.n_needed == n else f"at least {self.n_needed} of"
        its = "its neighbour" if n == 1 else f"{share} its {neighbors}"
        lines = [
            f"{neighbors} ({self.metric}) among {self.n_rows:,} rows,"
            f" by {self.n_components:,} instead of {self.n_features:,} numbers a row "
            f"({self.score})"
        ]
        if self.row_candidates is not None and self.hardest_rows is not None:
            half, most = _quantiles(self.row_candidates)
            lines.append(
                f"Fetch {self.every_row:,} besides the row itself: then every stored "
                f"row has {its} among them. Half of the rows need at most {half:,}, "
                f"99 % at most {most:,}; row {self.hardest_rows[0]} needs most."
            )
        if self.query_candidates is not None:
            lines.append(
                f"Fetch {self.new_query:,}: then a new query has {its} among them "
                f"with probability at least {self._level}, if it is drawn like these "
                f"{self.query_candidates.size:,} queries."
            )
        names = "stored rows", "queries"
        found = zip(self.recall(n), names, strict=True)
        shares = [f"{at_least(s)} ({who})" for s, who in found if s is not None]
        lines.append(
            f"Fetch {n} only: the share of neighbours found is at least "
            f"{' and '.join(shares)}."
        )
        if self.ratio is not None:
            lines.append(
                "Proved: the i-th row returned to a stored row is at most "
                f"{at_most(1.0 / self.ratio)} times as far as its true i-th neighbour, "
                "for every i, without a look at the full vectors."
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    def _table(self) -> Table:
        """Return the numbers, which notebooks show."""
        found = self.recall(self.n_neighbors)
        level = f"a new query, {self._level}"
        told = (
            ("every stored row", self.every_row, self.row_candidates, found.rows),
            (level, self.new_query, self.query_candidates, found.queries),
        )
        rows = [
            [who, *(f"{n:,}" for n in (m, *_quantiles(needed))), at_least(share)]
            for who, m, needed, share in told
            if needed is not None and share is not None
        ]
        last = f"found if {self.n_neighbors:,} are fetched"
        return ["", "candidates", "half need", "99 % need", last], rows


def _quantiles(needed: Ranks) -> tuple[int, int]:
    """Return what half of the queries, and 99 % of them, need at most."""
    half, most = np.quantile(needed, [0.5, 0.99], method="higher")
    return int(half), int(most)


class Question:
    """The true neighbours of rows and queries, found once for any number of plans."""

    def __init__(
        self,
        X: ArrayLike | Rows,
        n_neighbors: int = 10,
        *,
        queries: ArrayLike | Rows | None = None,
        metric: Metric = "euclidean",
        stored: bool = True,
    ) -> None:
        check_metric(metric)
        self.storage = Storage()
        self.rows = check_points(X, self.storage)
        self.queries = check_queries(queries, self.rows, self.storage)
        if not stored and queries is None:
            msg = "counting queries alone needs queries; got None. Pass some."
            raise ValueError(msg)
        most = int(self.rows.shape[0]) - stored
        if not is_whole(n_neighbors) or not 1 <= n_neighbors <= most:
            msg = (
                f"n_neighbors must be a whole number from 1 to {most}, the rows that "
                f"may be neighbours; got {n_neighbors!r}. Ask for fewer."
            )
            raise ValueError(msg)
        self.n_neighbors, self.metric, self.stored = int(n_neighbors), metric, stored
        self.first = first_copies(self.rows)
        self._known: dict[tuple[str, bool], Needed] = {}

    def plan(
        self,
        map: LinearMap | None = None,  # noqa: A002 - the user's word
        *,
        orientation: Orientation | None = None,
        reduced: ArrayLike | tuple[ArrayLike, ArrayLike | None] | None = None,
        score: Metric | None = None,
        confidence: float = CONFIDENCE,
        share: float = 1.0,
    ) -> SearchPlan:
        """Return the plan for one map, or for reduced vectors; see ``search_plan``."""
        score = self.metric if score is None else score
        check_metric(score, "score")
        _check_share(share)
        fewest = fewest_points(confidence)
        if self.queries is not None and self.queries.shape[0] < fewest:
            msg = (
                f"queries must number at least {fewest} for confidence {confidence:g}; "
                f"got {self.queries.shape[0]}. Pass more, or ask for less confidence."
            )
            raise ValueError(msg)
        if (map is None) == (reduced is None):
            msg = "search_plan needs either a map or reduced=(Z, ZQ). Pass one of them."
            raise ValueError(msg)
        ratio, linear, vectors = None, None, (self.rows, self.queries)
        if reduced is not None:
            vectors = self._checked(reduced)
        elif map is not None and hasattr(map, "transform"):
            asked = None if self.queries is None else map.transform(self.queries)
            vectors = self._checked((map.transform(self.rows), asked))
            ratio = self._ratio(map, score)
        else:
            width = int(self.rows.shape[1])
            linear = linear_map(map, width, orientation=orientation)
        ranks = self._ranks(*vectors, linear, score)
        n_components = vectors[0].shape[1] if linear is None else linear.shape[0]
        return SearchPlan(
            n_rows=int(self.rows.shape[0]),
            n_features=int(self.rows.shape[1]),
            n_components=int(n_components),
            n_neighbors=self.n_neighbors,
            metric=self.metric,
            score=score,
            confidence=confidence,
            share=share,
            row_ranks=ranks.get("rows"),
            query_ranks=ranks.get("queries"),
            ratio=ratio,
        )

    def _checked(
        self, reduced: ArrayLike | tuple[ArrayLike, ArrayLike | None]
    ) -> tuple[Rows, Rows | None]:
        """Return reduced rows and queries, one for each; else raise ValueError."""
        given: Any = reduced if isinstance(reduced, tuple) else (reduced, None)
        if len(given) != 2 or (given[1] is None) != (self.queries is None):
            msg = (
                "reduced must be (Z, ZQ), the reduced rows and the reduced queries, or "
                "Z where there are no queries. Pass one for each that you pass."
            )
            raise ValueError(msg)
        rows = check_points(given[0], self.storage, name="reduced rows")
        queries = check_queries(given[1], rows, self.storage, "reduced queries")
        pairs: Sequence[tuple[str, Rows, Rows]] = (
            ("X", rows, self.rows),
            ("queries", queries, self.queries),
        )
        for name, some, full in pairs:
            if some is not None and some.shape[0] != full.shape[0]:
                msg = (
                    f"reduced must have one row for each of {name}, "
                    f"{full.shape[0]}; got {some.shape[0]}. Reduce the same rows in "
                    "the same order."
                )
                raise ValueError(msg)
        return rows, queries

    def _ranks(
        self,
        rows: Rows,
        queries: Rows | None,
        linear: Array | None,
        score: Metric,
    ) -> dict[str, Ranks]:
        """Return the ranks of rows and queries, as many of both as were asked for."""
        numbers, places, counts = self._distinct(rows)
        names = ["rows"] * self.stored + ["queries"] * (queries is not None)
        ranks = {}
        for name in names:
            asked = queries if name == "queries" else None
            side = Nearness.of(
                rows, asked, score, linear=linear, numbers=numbers, storage=self.storage
            )
            found = ranks_of(side, self._needed(name, numbers, counts))
            ranks[name] = found[places] if asked is None else found
        return ranks

    def _distinct(self, reduced: Rows) -> tuple[Indices | None, Any, Ranks]:
        """Return numbers of distinct rows, each row's place among them, and counts."""
        is_first = self.first == np.arange(self.first.size)
        if is_first.all() or not _are_copies(reduced, self.first, ~is_first):
            return None, slice(None), np.ones(self.first.size, dtype=np.int64)
        numbers, places, counts = np.unique(
            self.first, return_inverse=True, return_counts=True
        )
        return numbers, places, counts

    def _needed(self, name: str, numbers: Indices | None, counts: Ranks) -> Needed:
        """Return the needed rows of stored rows or of queries; found once."""
        key = name, numbers is None
        if key not in self._known:
            asked = self.queries if name == "queries" else None
            side = Nearness.of(
                self.rows, asked, self.metric, numbers=numbers, storage=self.storage
            )
            self._known[key] = needed_rows(side, self.n_neighbors, counts)
        return self._known[key]

    def _ratio(self, model: Any, score: Metric) -> float | None:  # noqa: ANN401
        """Return what a certificate over all pairs of these rows says of every rank."""
        if (self.metric, score) != ("euclidean", "euclidean"):
            return None
        lost = proved_distortion(model, self.rows)
        if lost is None or lost >= 1.0:
            return None
        # A projection in float32 may gain its rounding.
        components = np.asarray(model.certificate_.components, dtype=np.float64)
        return math.sqrt((1.0 - lost) / largest_ratio(components))


def proved_distortion(model: Any, rows: Rows) -> float | None:  # noqa: ANN401
    """Return what a certificate says that any pair of rows loses at most, or None."""
    certificate = getattr(model, "certificate_", None)
    if certificate is None or certificate.pair_kind is not PairKind.ALL:
        return None
    if certificate.min_distance > 0.0 or certificate.n_points != rows.shape[0]:
        return None
    is_same = certificate.fingerprint == data_fingerprint(rows)
    return float(certificate.distortion) if is_same else None


def _are_copies(reduced: Rows, first: Indices, is_later: NDArray[np.bool_]) -> bool:
    """Return whether copies of a row stay alike, but for rounding."""
    gaps = abs(reduced[is_later] - reduced[first[is_later]])
    return bool(gaps.max() <= _ROUNDING * abs(reduced).max())


def _check_share(share: float) -> None:
    if not is_number(share) or not 0.0 < share <= 1.0:
        msg = (
            "share must be a number above 0 and at most 1, the share of the neighbours "
            f"to be found; got {share!r}. Use 1 for all."
        )
        raise ValueError(msg)


def search_plan(
    X: ArrayLike | Rows,
    map: LinearMap | None = None,  # noqa: A002 - the user's word
    n_neighbors: int = 10,
    queries: ArrayLike | Rows | None = None,
    metric: Metric = "euclidean",
    confidence: float = CONFIDENCE,
    *,
    share: float = 1.0,
    score: Metric | None = None,
    reduced: ArrayLike | tuple[ArrayLike, ArrayLike | None] | None = None,
    orientation: Orientation | None = None,
    stored: bool = True,
) -> SearchPlan:
    """Count how many candidates a search by reduced vectors must fetch.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_rows, n_features)
        The stored rows, in full.
    map : fitted estimator, array-like, linear layer or faiss transform, or None
        What reduces the rows, as ``audit`` takes it. Of anything with a ``transform``
        the vectors that it returns are compared.
    n_neighbors : int
        Number of nearest rows that a search returns.
    queries : array-like or sparse matrix of shape (n_queries, n_features) or None
        Queries that were not used to make the map, drawn like those to come.
    metric : {"euclidean", "cosine", "inner_product"}
        How near full vectors are.
    confidence : float
        Probability with which ``new_query`` is to suffice.
    share : float
        Share of the true neighbours that must be among the candidates.
    score : {"euclidean", "cosine", "inner_product"} or None
        How near reduced vectors are; None means ``metric``. For vectors of length 1 the
        cosine of reduced vectors often finds more than their distance.
    reduced : tuple of array-like (Z, ZQ), array-like Z, or None
        In place of a map, the reduced rows and queries as any system orders them:
        decoded codes, another model's vectors, signs as -1 and 1.
    orientation : {"rows", "columns"} or None
        As for ``audit``: what one output coordinate of a square matrix is.
    stored : bool
        Whether to count for every stored row too. That is as much work as if each were
        a query.

    Returns
    -------
    SearchPlan
        Numbers of candidates; printing it says what they promise.

    Raises
    ------
    ValueError
        If the data, the map or the queries are not usable, or the queries are too few
        for the confidence.

    See Also
    --------
    isoproj.close_pairs : All pairs closer than a radius.
    isoproj.audit : Measure what a linear map does to all pairs.

    Notes
    -----
    The rank of a true neighbour is the number of rows that are at most as far away in
    the reduced vectors, so ties count against the plan. All rows as near as the last
    neighbour must be found; of identical rows any will do. Numbers are exact; distances
    that float64 cannot tell apart are ties.

    References
    ----------
    Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World", 2005, chapter
    2: why the rank of a new query among the others is uniform.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj import search_plan
    >>> X = np.random.default_rng(0).normal(size=(200, 8))
    >>> plan = search_plan(X, np.eye(6, 8), n_neighbors=5)
    >>> plan.every_row, plan.recall(plan.every_row).rows
    (55, 1.0)
    """
    question = Question(X, n_neighbors, queries=queries, metric=metric, stored=stored)
    return question.plan(
        map,
        orientation=orientation,
        reduced=reduced,
        score=score,
        confidence=confidence,
        share=share,
    )
