"""What every verb prints with ``--json``, as dataclasses.

``isoproj.cli.schemas`` derives the JSON schemas from them: a type says what a value is,
a text in ``Annotated`` describes it, a dict in ``Annotated`` is added to its schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal, Self, TypedDict

from isoproj.files.read.reading import DataFile
from isoproj.numerics.arrays import is_sparse
from isoproj.pairs.rule import PairKind
from isoproj.proof.certificate import Certificate
from isoproj.proof.heldout import Heldout
from isoproj.proof.objective import Objective
from isoproj.proof.verify import CheckedClaim
from isoproj.solvers.api import Status

Count = Annotated[int, {"minimum": 0}]
Pairs = Annotated[
    Sequence[tuple[Count, Count]], "row numbers counted from 0, worst pair first"
]
WorstLosses = Annotated[
    Sequence[float], "share of squared length that these pairs lose"
]
Distortion = Annotated[
    float, "largest share of squared length that any pair loses; exact"
]
LowerBound = Annotated[
    float, "no projection to as many dimensions has a smaller distortion"
]
Quantiles = Annotated[
    Mapping[str, float], "share lost that this fraction of pairs stays within"
]
Close = Annotated[Count, "pairs closer than --min-distance"]
KeptShare = Annotated[float, "of the objective"]
KeptBound = Annotated[float, "no projection under the cap keeps more"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What is told of an object, field by field."""

    @classmethod
    def of(cls, source: object, **more: Any) -> Self:  # noqa: ANN401
        """Return the fields: those given, and the attributes of ``source``."""
        names = [field.name for field in fields(cls) if field.name not in more]
        return cls(**{name: getattr(source, name) for name in names}, **more)

    @classmethod
    def of_any(cls, source: object | None, **more: Any) -> Self | None:  # noqa: ANN401
        """Return what is told of an object, None without one."""
        return None if source is None else cls.of(source, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """The points that were read."""

    name: str
    format: str
    chosen: str | None
    n_points: Count
    n_features: Count
    dtype: str
    sparse: bool

    @classmethod
    def of(cls, data: DataFile) -> Self:
        """Return what is told of a data file."""
        return cls(
            name=data.name,
            format=data.format,
            chosen=data.chosen or None,
            n_points=int(data.points.shape[0]),
            n_features=int(data.points.shape[1]),
            dtype=str(data.points.dtype),
            sparse=is_sparse(data.points),
        )


PointsRead = Annotated[
    Data, "the points that were read; 'chosen' is the array or column used"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept(_Told):
    """What is kept on the whole under a cap."""

    objective: Objective
    cap: Annotated[float, "no pair that counts loses more"]
    kept: KeptShare
    kept_bound: KeptBound


KeptOrNull = Annotated[
    Kept | None, "what is kept on the whole under a cap; null without one"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix(_Told):
    """What the first dimensions of a nested projection lose, and their bound."""

    n_components: Count
    distortion: Distortion
    lower_bound: LowerBound
    guarantee: KeptOrNull

    @classmethod
    def all_of(cls, certificate: Certificate) -> list[Self]:
        """Return what is told of all prefixes; nothing if none was asked for."""
        return [
            cls.of(prefix, guarantee=Kept.of_any(prefix.guarantee))
            for prefix in certificate.prefixes
        ]


Prefixes = Annotated[
    Sequence[Prefix], "the prefixes of a nested projection; empty without --nested"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses(_Told):
    """How the share lost spreads over pairs."""

    distortion: Distortion
    mean: float
    quantiles: Quantiles


@dataclass(frozen=True, slots=True, kw_only=True)
class PairLosses(Losses):
    """How the share lost spreads over a number of held-out pairs."""

    n_pairs: Count


PairLossesOrNull = Annotated[PairLosses | None, "null where no pair counts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPointsPromise(_Told):
    """What holds for new points that are drawn like the points fitted."""

    new_point: Annotated[float, "no distance of a new point to 'fitted' loses more"]
    fitted: Annotated[str, "which of a new point's distances these are, in words"]
    new_pair_share: Annotated[
        float | None, "at most this share of 'new_pairs' loses more than the distortion"
    ]
    new_pairs: Annotated[str, "which pairs of new points these are, in words"]
    confidence: Annotated[float, "probability of each of the two statements"]

    @classmethod
    def after(cls, heldout: Heldout) -> Self | None:
        """Return what is told of new points, None if too few points were held out."""
        try:
            return cls.of(heldout.guarantee())
        except ValueError:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldoutLosses(_Told):
    """What pairs lose that have a point that was not fitted."""

    rows: Annotated[Sequence[Count], "row numbers that were held out"]
    within: PairLossesOrNull
    to_training: PairLossesOrNull
    guarantee: Annotated[
        NewPointsPromise | None, "null if too few points were held out"
    ]

    @classmethod
    def after(cls, heldout: Heldout | None) -> Self | None:
        """Return what is told of points held out, None without any."""
        if heldout is None:
            return None
        return cls.of(
            heldout,
            within=PairLosses.of_any(heldout.within),
            to_training=PairLosses.of_any(heldout.to_training),
            guarantee=NewPointsPromise.after(heldout),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload(_Told):
    """The result of a verb."""

    verb: ClassVar[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit(Payload):
    """The result of ``isoproj fit``."""

    verb = "fit"
    data: PointsRead
    model: Annotated[str | None, "where it was saved"]
    n_components: Count
    method: Literal["near-isometric", "guaranteed-pca"]
    solver: str
    status: Status
    n_iter: Count
    seconds: float
    distortion: Distortion
    lower_bound: LowerBound
    optimality_gap: Annotated[
        float | None, "distortion / lower_bound - 1; null when infinite"
    ]
    isometry: Annotated[
        float, "two-sided: squared lengths within 1 +- this if balanced"
    ]
    scale: Annotated[float, "factor of projected points"]
    n_pairs: Count
    n_identical: Count
    n_close: Close
    worst_pairs: Pairs
    worst_distortions: WorstLosses
    fingerprint: str
    proof: Annotated[
        Literal["fantope", "hull"],
        "what proves lower_bound: dual weights, or a hull of directions in a subspace",
    ]
    n_components_lower_bound: Annotated[
        int | None, "fewer dimensions cannot be under the cap; null if -k was given"
    ]
    guarantee: KeptOrNull
    heldout: Annotated[
        HeldoutLosses | None,
        "what pairs of points lose that were not fitted, among themselves and with "
        "fitted ones; null without --heldout",
    ]
    nested: Prefixes


@dataclass(frozen=True, slots=True, kw_only=True)
class Projected:
    """The file of projected points."""

    name: str
    format: str
    n_points: Count
    n_components: Count
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform(Payload):
    """The result of ``isoproj transform``."""

    verb = "transform"
    model: str
    data: PointsRead
    output: Projected


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Pairs by the share they lose."""

    counts: Sequence[Count]
    edges: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighborsFound(_Told):
    """What a map does to nearest neighbours."""

    metric: Literal["euclidean", "cosine", "inner_product"]
    queries: Annotated[str | None, "null where every row of the data is a query"]
    n_queries: Count
    recall: Annotated[
        Mapping[str, float], "by number of neighbours: share that is found; exact"
    ]
    nearest_changed: Annotated[
        float, "share of queries whose nearest neighbour changed"
    ]
    distorted: Annotated[
        Sequence[tuple[Count, Count]],
        "query and row of the neighbours that lose most, worst first",
    ]
    distortions: WorstLosses


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixLosses(_Told):
    """What the first dimensions of a nested projection do to the same pairs."""

    n_components: Count
    distortion: Distortion
    mean: float
    worst_pairs: Pairs
    recall: Annotated[Mapping[str, float], "empty without --recall"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A claim that the caller asked to hold."""

    name: str
    allowed: float
    found: float
    holds: bool
    rows: Annotated[
        Sequence[Sequence[Count]],
        "pairs, or queries alone, that make the claim what it is, worst first",
    ]

    @property
    def line(self) -> str:
        """The claim in one line, with its rows if it fails."""
        word = "holds" if self.holds else "FAILS"
        shown = "; ".join(" and ".join(map(str, row)) for row in self.rows)
        rows = "" if self.holds or not shown else f", rows {shown}"
        return f"{word}: {self.name} {self.found:.6f}, allowed {self.allowed}{rows}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit(Payload):
    """The result of ``isoproj audit``."""

    verb = "audit"
    model: str
    data: PointsRead
    distortion: Distortion
    stretch: Annotated[float, "largest share that a pair gains; 0 if none does"]
    mean: float
    quantiles: Quantiles
    worst_pairs: Pairs
    worst_distortions: WorstLosses
    n_pairs: Count
    n_identical: Count
    n_close: Close
    histogram: Annotated[Histogram, "of the share lost; one edge more than counts"]
    neighbors: Annotated[NeighborsFound | None, "null without --recall"]
    max_distortion: Annotated[float | None, "what was allowed"]
    nested: Annotated[
        Sequence[PrefixLosses], "of the prefixes of a nested model, else empty"
    ]
    claims: Annotated[Sequence[Gate], "what --at-most and --recall-at-least ask for"]
    holds: Annotated[bool, "false when a claim fails"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verify(Payload):
    """The result of ``isoproj verify``."""

    verb = "verify"
    model: str
    data: PointsRead
    verified: Annotated[bool, "whether every claim holds"]
    claims: Annotated[
        Sequence[CheckedClaim],
        "after a claim that makes the others meaningless fails, they are left out",
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Export(Payload):
    """The result of ``isoproj export``."""

    verb = "export"
    model: str
    to: str
    output: str
    n_bytes: Count
    n_features: Count
    n_components: Count
    use: Annotated[str, "how the other system loads it"]


class _Cell(TypedDict):
    """What was fitted."""

    method: str
    k: Count
    seed: int


class _Record(_Cell, total=False):
    """What the referee measured; a record may hold more than is listed here."""

    error: str
    distortion: Distortion
    contracted: Annotated[float, "the same, scaled to stretch nothing"]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare(Payload):
    """The result of ``isoproj compare``."""

    verb = "compare"
    data: PointsRead
    records: Annotated[
        Sequence[_Record],
        "one per method, k and seed; a failed one has 'error' and no numbers",
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """Both bounds for one number of dimensions."""

    k: Count
    distortion: Distortion
    lower_bound: LowerBound


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """How many dimensions a loss takes."""

    target: Annotated[float, "largest allowed loss of any pair"]
    sufficient: Annotated[int | None, "smallest k of the curve under it"]
    impossible: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve(Payload):
    """The result of ``isoproj curve``."""

    verb = "curve"
    data: PointsRead
    curve: Sequence[CurvePoint]
    knees: Annotated[
        Sequence[Count], "after these, further dimensions lower the loss much less"
    ]
    targets: Sequence[Target]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPoint:
    """What is kept under one cap."""

    max_distortion: Annotated[float, "largest allowed loss of any pair"]
    distortion: Distortion
    kept: KeptShare
    kept_bound: KeptBound


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier(Payload):
    """The result of ``isoproj frontier``."""

    verb = "frontier"
    data: PointsRead
    objective: Objective
    lower_bound: LowerBound
    frontier: Annotated[Sequence[FrontierPoint], "from the least distortion to PCA"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFile:
    """The file of a report."""

    name: str
    format: Literal["html", "markdown", "json"]
    n_bytes: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Payload):
    """The result of ``isoproj report``."""

    verb = "report"
    model: str
    data: PointsRead
    output: ReportFile
    seconds: float
    sentence: str
    distortion: Distortion
    lower_bound: LowerBound
    recomputed: Annotated[bool, "whether all pairs were walked over; else a sample was"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo(Payload):
    """The result of ``isoproj demo``."""

    verb = "demo"
    data: PointsRead
    n_components: Count
    seconds: float
    lower_bound: LowerBound
    methods: Mapping[str, Losses]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(_Told):
    """One array, data set or column inside a file."""

    name: str
    shape: Sequence[Count]
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DataInfo(Payload):
    """The result of ``isoproj info`` on data."""

    verb = "info"
    kind: Literal["data"] = "data"
    name: str
    format: str | None
    data: PointsRead | None
    fault: Annotated[str | None, "why it cannot be used as it is"]
    contents: Sequence[Part]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile(_Told):
    """What a model file states; only ``isoproj verify`` recomputes it."""

    estimator: str | None
    format_version: Count
    parameters: dict[str, Any]
    fitted: dict[str, Any] | None
    n_features: Count
    n_components: Count
    dtype: str
    distortion: float
    lower_bound: float
    n_pairs: Count
    pairs: PairKind
    include_norms: bool
    min_distance: float
    n_close: Count
    n_points: Count
    fingerprint: str
    guarantee: KeptOrNull
    nested: Prefixes
    versions: dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo(Payload):
    """The result of ``isoproj info`` on a model."""

    verb = "info"
    kind: Literal["model"] = "model"
    name: str
    model: Annotated[ModelFile, "as the file states; only verify recomputes"]


# By verb, what it may print.
VERBS: dict[str, tuple[type[Payload], ...]] = {
    payload.verb: (payload,)
    for payload in (
        Fit,
        Transform,
        Audit,
        Verify,
        Export,
        Compare,
        Curve,
        Frontier,
        Report,
        Demo,
    )
} | {"info": (DataInfo, ModelInfo)}
