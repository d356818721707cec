"""The table of experiments: data, sizes, seeds, methods and time rules."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

# The paper's own algorithm, against whose time the others are measured.
ALGORITHM = "dual_ascent"
N_STEPS = 120
DIMENSIONS = (5, 7, 10, 15, 20, 30, 40)
# Stands for a sample size and means every point.
WHOLE = 0
_BASELINES = ("sdp+dr", "sdp+rr", "pca", "random")
_PAPER = (ALGORITHM, *_BASELINES, "minimax")
_QUICK_SIZES = (46, 101)
_QUICK_SEEDS = (0, 1)
_SEEDS = (0, 1, 2, 3, 4)


class Kind(enum.StrEnum):
    """How a cell is measured."""

    SIZES = "sizes"
    GRID = "grid"
    COURSE = "course"
    PICTURE = "picture"
    CONVERGENCE = "convergence"
    DIMENSION = "dimension"


@dataclass(frozen=True, slots=True)
class Subject:
    """The collection and the classes that a sample is drawn from."""

    data: str
    labels: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.data}-{''.join(map(str, self.labels))}"

    @property
    def title(self) -> str:
        """The subject in words for people."""
        if self.data == "news":
            return ("Atheism", "MS-Windows Misc")[self.labels[0]]
        name = "digit" if self.data == "mnist" else "8 x 8 digit"
        plural = "s" if len(self.labels) > 1 else ""
        return f"{name}{plural} {', '.join(map(str, self.labels))}"


@dataclass(frozen=True, slots=True)
class Cell:
    """The smallest piece of work that is kept: one sample of r points and one k."""

    experiment: str
    subject: Subject
    r: int
    k: int
    seed: int

    @property
    def key(self) -> str:
        """A name that no other cell has."""
        size = "all" if self.r == WHOLE else str(self.r)
        return f"{self.experiment}/{self.subject}/r{size}/k{self.k}/s{self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A row of the table; every combination of subject, size, k and seed is a cell.

    ``methods`` are names of ``compare.METHODS`` and ``"sdp+dr/scs"``; ``extras`` adds a
    slow method at one size. ``rules`` says by size how many times the algorithm's own
    time the SDP methods get; other sizes have no limit. With ``has_held_out`` every map
    is also scored on test points. ``quick_...`` replaces a field in a quick run. Cells
    of experiments that are ``last`` wait until the others are done.
    """

    name: str
    title: str
    kind: Kind
    subjects: tuple[Subject, ...]
    sizes: tuple[int, ...]
    ks: tuple[int, ...] = DIMENSIONS
    seeds: tuple[int, ...] = _SEEDS
    methods: tuple[str, ...] = ()
    rules: tuple[tuple[int, float], ...] = ()
    extras: tuple[tuple[int, str], ...] = ()
    has_held_out: bool = False
    quick_subjects: tuple[Subject, ...] | None = None
    quick_sizes: tuple[int, ...] | None = None
    quick_ks: tuple[int, ...] | None = None
    last: bool = False

    def time_rule(self, r: int) -> float | None:
        """Return how many times the algorithm's time SDP gets, None: no limit."""
        return dict(self.rules).get(r)

    def methods_at(self, r: int) -> tuple[str, ...]:
        """Return the methods that are run at a sample size."""
        return (*self.methods, *(name for size, name in self.extras if size == r))

    def cells(self) -> list[Cell]:
        """Return every cell, ordered by seed, then by size, subject and k."""
        return [
            Cell(self.name, subject, r, k, seed)
            for seed in self.seeds
            for r in self.sizes
            for subject in self.subjects
            for k in self.ks
            # A sample of all points is the same for every seed.
            if r != WHOLE or seed == self.seeds[0]
        ]

    def quick(self) -> Experiment:
        """Return the experiment with small samples and two seeds: minutes."""
        usual = tuple(r for r in self.sizes if r in _QUICK_SIZES)
        return replace(
            self,
            subjects=self.quick_subjects or self.subjects,
            sizes=usual if self.quick_sizes is None else self.quick_sizes,
            ks=self.quick_ks or self.ks,
            seeds=tuple(seed for seed in self.seeds if seed in _QUICK_SEEDS),
        )

    def on(self, data: str, largest: int) -> Experiment:
        """Return the experiment on other digits in place of MNIST.

        Samples that need more than ``largest`` points of a class are left out.
        """

        def moved(subjects: tuple[Subject, ...]) -> tuple[Subject, ...]:
            return tuple(Subject(data, s.labels) for s in subjects if s.data != "news")

        per_class = max((len(s.labels) for s in self.subjects), default=1)
        fitting = tuple(r for r in self.sizes if r <= largest * per_class)
        quick = self.quick_sizes
        return replace(
            self,
            subjects=moved(self.subjects),
            quick_subjects=self.quick_subjects and moved(self.quick_subjects),
            sizes=fitting,
            quick_sizes=quick and tuple(r for r in quick if r in fitting),
        )


_DIGITS = tuple(Subject("mnist", (digit,)) for digit in (2, 4, 5, 7))
_NEWS = (Subject("news", (0,)), Subject("news", (1,)))
_FIVE = (Subject("mnist", (5,)),)

EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        name="table1",
        title="Table 1: numbers of pairs, dimensions and step sizes",
        kind=Kind.SIZES,
        subjects=_FIVE,
        sizes=(46, 101, 142, 317, 448),
        quick_sizes=(46, 101, 142, 317, 448),
        ks=(5,),
        seeds=(0,),
    ),
    Experiment(
        name="table1-news",
        title="Table 1, 20 Newsgroups",
        kind=Kind.SIZES,
        subjects=_NEWS,
        sizes=(46,),
        ks=(5,),
        seeds=(0,),
    ),
    Experiment(
        name="figure1",
        title="Figure 1: distortion against k, MNIST, 1K, 5K and 10K pairs",
        kind=Kind.GRID,
        subjects=_DIGITS,
        sizes=(46, 101, 142),
        methods=_PAPER,
        rules=((101, 3.0), (142, 3.0)),
        extras=((101, "sdp+dr/scs"),),
    ),
    Experiment(
        name="figure2",
        title="Figure 2: distortion against k, MNIST, 50K and 100K pairs",
        kind=Kind.GRID,
        subjects=_DIGITS,
        sizes=(317, 448),
        methods=_PAPER,
        rules=((317, 1.0), (448, 1.0)),
    ),
    Experiment(
        name="figure2-news",
        title="Figure 2, 20 Newsgroups: distortion against k in 8,000 dimensions",
        kind=Kind.GRID,
        subjects=_NEWS,
        sizes=(46,),
        methods=_PAPER,
        rules=((46, 3.0),),
    ),
    Experiment(
        name="figure3",
        title="Figure 3: distortion of SDP+DR against time, digit 5, 5K pairs",
        kind=Kind.COURSE,
        subjects=_FIVE,
        sizes=(101,),
        ks=(10, 15, 30),
        methods=("sdp+dr", "sdp+dr/scs"),
    ),
    Experiment(
        name="figure4",
        title="Figure 4: t-SNE of the data and of its 40-dimensional embeddings",
        kind=Kind.PICTURE,
        subjects=(Subject("mnist", (2, 4, 5, 7)),),
        sizes=(448,),
        quick_sizes=(448,),
        ks=(40,),
        seeds=(0, 1),
        methods=(ALGORITHM, "sdp+dr", "sdp+rr", "pca", "minimax"),
        rules=((448, 1.0),),
    ),
    Experiment(
        name="convergence",
        title="Theorem 2: the average iterate's dual value against the optimum",
        kind=Kind.CONVERGENCE,
        subjects=_FIVE,
        sizes=(46, 101),
        ks=(5, 10, 20, 40),
        seeds=_QUICK_SEEDS,
    ),
    Experiment(
        name="dimension",
        title="Time of a step against the dimension d of the data, 20 Newsgroups",
        kind=Kind.DIMENSION,
        subjects=(_NEWS[1],),
        sizes=(46,),
        ks=(20,),
        seeds=_QUICK_SEEDS,
    ),
    Experiment(
        name="held-out",
        title="Beyond: points that were not fitted, r below and above d = 784",
        kind=Kind.GRID,
        subjects=_FIVE,
        sizes=(101, 448, 1500),
        quick_sizes=(101, 1500),
        ks=(10, 20, 40),
        quick_ks=(20,),
        seeds=(0, 1, 2),
        methods=(ALGORITHM, "pca", "random", "minimax"),
        has_held_out=True,
        last=True,
    ),
    Experiment(
        name="classes",
        title="Beyond: whole digit classes, up to 20 million pairs",
        kind=Kind.GRID,
        subjects=_DIGITS,
        sizes=(WHOLE,),
        quick_subjects=_FIVE,
        quick_sizes=(WHOLE,),
        ks=(10, 20, 40),
        quick_ks=(20,),
        seeds=(0,),
        methods=("pca", "random", "minimax"),
        has_held_out=True,
        last=True,
    ),
)


def experiment_named(name: str) -> Experiment:
    """Return the experiment of a name."""
    return next(experiment for experiment in EXPERIMENTS if experiment.name == name)


def chosen(only: Sequence[str] = (), *, quick: bool = False) -> tuple[Experiment, ...]:
    """Return the experiments asked for, in the order of the table.

    ``only`` holds names, or their beginnings up to a dash; an empty sequence means all.
    """
    for name in only:
        if not any(_fits(name, experiment) for experiment in EXPERIMENTS):
            known = ", ".join(experiment.name for experiment in EXPERIMENTS)
            msg = f"experiments must be among {known}; got {name!r}. See --list."
            raise ValueError(msg)
    return tuple(
        experiment.quick() if quick else experiment
        for experiment in EXPERIMENTS
        if not only or any(_fits(name, experiment) for name in only)
    )


def _fits(name: str, experiment: Experiment) -> bool:
    return experiment.name == name or experiment.name.startswith(f"{name}-")


def in_order(experiments: Iterable[Experiment]) -> list[Cell]:
    """Return all cells, first seeds first, so that every part of a run is fair."""
    ranked = [
        # Experiments that wait come after the second seed of the others.
        (cell.seed + (1.5 if experiment.last else 0.0), place, cell)
        for place, experiment in enumerate(experiments)
        for cell in experiment.cells()
    ]
    return [cell for _, _, cell in sorted(ranked, key=lambda row: row[:2])]
