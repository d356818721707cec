"""Every sentence about a proof or a number, from every door, against brute force.

A text is read sentence by sentence: a pattern says what a sentence states, and a check
compares it with figures computed here. A sentence with a figure or a claim that no
pattern knows fails, so that a new one needs a check of its own.
"""

from __future__ import annotations

import html
import math
import re
import warnings

import numpy as np
import pytest
from geometry import brute_losses, every_pair
from scipy.spatial import ConvexHull
from sklearn.datasets import load_digits, load_iris

from isoproj import (
    GuaranteedPCA,
    NearIsometricProjection,
    audit,
    distortion_curve,
    search_plan,
)
from isoproj.comparison.choosing import FORMATS
from isoproj.exceptions import DuplicatePointsWarning
from isoproj.proof.certificate import certificate_of
from isoproj.proof.verify import check_claims

pytest.importorskip("jinja2")

DIGITS, CLASSES = (part[:90] for part in load_digits(return_X_y=True))
QUERIES = np.arange(90) % 3 == 0
LISTED = np.random.default_rng(0).integers(90, size=(60, 2))
# One row is the origin.
CENTRED = DIGITS - DIGITS[7]
LISTED = LISTED[LISTED[:, 0] != LISTED[:, 1]]
QUICK = ("--tol", 0.5, "--seed", 0)
# Options of a fit, by scene.
SCENES = {
    "hull": ("-k", 2, "--seed", 0),
    "weights": ("-k", 10, *QUICK),
    "neighbors": ("-k", 7, *QUICK, "--pairs", "neighbors"),
    "labels": ("-k", 7, *QUICK, "--pairs", "labels", "--labels", "y.txt"),
    "min_distance": ("-k", 7, *QUICK, "--min-distance", 20.5),
    "sample": ("-k", 7, *QUICK, "--pairs", "sample"),
    "listed": ("-k", 7, *QUICK, "--pairs", "pairs.npy"),
    "nested": ("-k", 10, *QUICK, "--nested", 4),
    "guaranteed": ("-k", 4, *QUICK, "--method", "guaranteed-pca"),
    "heldout": ("-k", 7, *QUICK, "--heldout", 30),
    "fewest": ("--max-distortion", 0.5, *QUICK),
    "directions": ("-k", 4, *QUICK, "--pairs", "directions"),
    "norms": ("-k", 4, *QUICK, "--include-norms"),
    "heldout norms": ("-k", 4, *QUICK, "--include-norms", "--heldout", 30),
    "queries": ("-k", 7, *QUICK, "--pairs", "queries", "--labels", "q.txt"),
}
# Scenes where rows count as directions, which is pairs with the origin, the last point.
OF_ROWS = ("directions", "norms", "heldout norms")


def pairs_that_count(scene, X, certificate):
    """Return the pairs of a scene, by the meaning of its option."""
    i, j = every_pair(len(X)).T
    if scene == "labels":
        i, j = (row[CLASSES[i] != CLASSES[j]] for row in (i, j))
    elif scene == "queries":
        i, j = (row[QUERIES[i] != QUERIES[j]] for row in (i, j))
    elif scene in OF_ROWS:
        rows = np.arange(len(X))
        lengths = np.column_stack([rows, np.full(len(X), len(X))])
        i, j = np.vstack([np.column_stack([i, j]), lengths][scene == "directions" :]).T
    elif scene == "min_distance":
        far = np.linalg.norm(X[i] - X[j], axis=1) >= 20.5
        i, j = i[far], j[far]
    elif scene == "neighbors":
        # Of equally near rows any may be the last, so that the list decides.
        lengths = np.linalg.norm(X[:, None] - X, axis=2)
        np.fill_diagonal(lengths, np.inf)
        last = np.sort(lengths, axis=1)[:, 9]
        i, j = certificate.listed_pairs.T
        assert (lengths[i, j] <= np.maximum(last[i], last[j]) + 1e-9).all()
    elif scene in ("listed", "sample"):
        listed = LISTED if scene == "listed" else certificate.listed_pairs
        i, j = np.unique(np.sort(listed, axis=1), axis=0).T
    return np.column_stack([i, j])


def unit(X, pairs):
    gaps = X[pairs[:, 0]] - X[pairs[:, 1]]
    return gaps / np.linalg.norm(gaps, axis=1, keepdims=True)


def proved(X, certificate):
    """Return the bounds of the weights and of the hull, computed anew."""
    x, k = unit(X, certificate.weighted_pairs), certificate.n_components
    moment = x.T @ (certificate.weights[:, None] * x)
    bounds = {"fantope": 1.0 - np.linalg.eigvalsh(moment)[-k:].sum()}
    if certificate.hull is not None:
        y = unit(X, certificate.hull.hull_pairs) @ certificate.hull.hull_axes.T
        facets = ConvexHull(np.vstack([y, -y])).equations
        bounds["hull"] = facets[:, -1].max() ** 2
    return bounds


class Figures:
    """What is true of a scene, by brute force from rows, pairs and projection."""

    def __init__(self, scene, X, model):
        self.c = certificate = certificate_of(model)
        self.X, self.k = X, certificate.n_components
        self.points = np.vstack([X, np.zeros(X.shape[1])]) if scene in OF_ROWS else X
        self.pairs, self.losses = brute_losses(
            self.points, certificate.components, pairs_that_count(scene, X, certificate)
        )
        self.things = "pairs and rows" if scene in OF_ROWS else "pairs"
        self.things = "rows" if scene == "directions" else self.things
        self.distortion = self.losses.max()
        self.proofs = proved(self.points, certificate)
        self.lower = max(self.proofs.values())
        self.gap = self.distortion / self.lower - 1.0
        every = brute_losses(X, certificate.components)[1]
        self.share_above = (every > self.distortion + 1e-12).mean()
        self.prefixes = {}
        for k, part in certificate.by_dimension.items():
            lost = brute_losses(self.points, part.components, self.pairs)[1].max()
            self.prefixes[k] = lost, max(proved(self.points, part).values())
        if certificate.guarantee is not None:
            self._keep(certificate.guarantee)
        axes = np.linalg.svd(X - X.mean(axis=0))[2][: self.k]
        self.pca = brute_losses(self.points, axes, self.pairs)[1]

    def _keep(self, stated):
        spread = np.cov(self.X, rowvar=False)
        spread /= np.trace(spread)
        components, w = self.c.components, stated.multipliers
        self.cap = stated.cap
        self.kept = np.trace(components @ spread @ components.T)
        x = unit(self.X, stated.capped_pairs)
        most = np.linalg.eigvalsh(spread + x.T @ (w[:, None] * x))[-self.k :].sum()
        self.kept_bound = most - (1.0 - self.cap) * w.sum()


def number(text):
    return float(text.replace(",", ""))


def below(text, value, unit=1.0):
    """Assert that a printed number is at most a value, and near it."""
    digits = len(text.partition(".")[2])
    assert value * unit - 1.01 * 10.0**-digits <= number(text) <= value * unit + 1e-7


def above(text, value, unit=1.0):
    digits = len(text.partition(".")[2])
    assert value * unit - 1e-7 <= number(text) <= value * unit + 1.01 * 10.0**-digits


def near(text, value):
    assert abs(number(text) - value) <= 0.51 * 10.0 ** -len(text.partition(".")[2])


def every_one(f, n, what, kept, k, most):
    assert number(n) == len(f.pairs)
    sizes = {"pairs": "distances", "rows": "lengths"}
    told = sizes.get(f.things, "distances and lengths")
    assert what == ("sampled " if f.c.pair_kind == "sample" else "") + told
    assert int(k) == f.k
    below(kept, 1.0 - f.distortion, 100)
    above(most, 1.0 - f.lower, 100)


def excluded(f, k, cap):
    """Hold the proof of an exclusion against the cap, which is rounded down."""
    proof = f.c.exclusion
    x = unit(f.points, proof.excluding_pairs)
    moment = x.T @ (proof.excluding_weights[:, None] * x)
    assert int(k) == proof.n_components < f.k
    below(cap, proof.cap, 100)
    assert 1.0 - np.linalg.eigvalsh(moment)[-int(k) :].sum() > proof.cap - 1e-9


def over(f, n, total, share):
    assert number(n) == len(f.pairs)
    assert number(total) == len(f.X) * (len(f.X) - 1) // 2
    assert f.share_above * 100 <= number(share)


def first(f, k, kept, most):
    below(kept, 1.0 - f.prefixes[int(k)][0], 100)
    above(most, 1.0 - f.prefixes[int(k)][1], 100)


def keeps(f, kept, cap, most):
    below(kept, f.kept, 100)
    below(cap, f.cap, 100)
    above(most, f.kept_bound, 100)


def lower_line(f, lower, _, over, times, proof, things):
    assert things == f.things
    below(lower, f.lower)
    if over:
        above(over, f.gap, 100)
    if times:
        above(times, 1.0 + f.gap)
    named = "hull" if "hull" in proof else "fantope"
    assert f.proofs[named] == f.lower


def worst_line(f, i, j, lost):
    X, (i, j) = f.all_rows, (int(i), int(j))
    near(lost, brute_losses(X, f.c.components, [[i, j]])[1][0])
    near(lost, f.distortion)


def of_things(f, n, things):
    assert (number(n), things) == (len(f.pairs), f.things)


def told_proof(f, n, things, loss, subject, _, these, k, lower):
    of_things(f, n, things)
    assert these == things
    near(loss, f.distortion)
    below(lower, f.lower)
    assert int(k) == f.k
    proof = "hull" if "all directions" in subject else "fantope"
    assert f.proofs[proof] == f.lower
    count = number(re.search(r"[\d,]+", subject)[0])
    proving = f.c.weighted_pairs if proof == "fantope" else f.c.hull.hull_pairs
    assert count == len(proving)


def heldout_line(f, which, n, things, worst, most, mean):
    i, j = np.array(f.held), np.array(f.training)
    origin, is_within = len(f.all_rows), which == "among them"
    # Lengths of rows held out are theirs alone.
    others = [*i, origin] if is_within and f.things != "pairs" else i
    pairs = [[a, b] for a in i for b in (others if is_within else j)]
    pairs = [p for p in pairs if not is_within or p[0] < p[1]]
    assert things == (f.things if is_within else "pairs")
    points = np.vstack([f.all_rows, np.zeros(f.X.shape[1])])
    losses = brute_losses(points, f.c.components, pairs)[1]
    assert number(n) == losses.size
    near(worst, losses.max())
    near(mean, losses.mean())
    assert (losses <= number(most)).mean() >= 0.999


def promised(f, n, most, level, share, stated, level_too):
    assert (number(n), level, level_too) == (len(f.training), "95", "95")
    lost = [
        brute_losses(f.all_rows, f.c.components, [[i, j] for j in f.training])[1].max()
        for i in f.held
    ]
    above(most, np.sort(lost)[math.ceil((len(lost) + 1) * 0.95) - 1])
    above(stated, f.distortion)
    assert 0.0 < number(share) <= 100.0


def much(f, kept, k):
    above(kept, 1.0 - f.lower, 100)
    assert int(k) == f.k


def close(f, apart, others, least):
    lengths = np.linalg.norm(
        f.X[f.c.worst_pairs[:, 0]] - f.X[f.c.worst_pairs[:, 1]], axis=1
    )
    assert lengths.max() < number(apart) == number(least) < 1.1 * lengths.max()
    every = np.linalg.norm(f.X[:, None] - f.X, axis=2)
    assert np.quantile(every, 0.35) < number(others) < np.quantile(every, 0.65)


def worst_row(f, i, lost):
    origin = np.zeros(f.X.shape[1])
    loss = brute_losses([f.all_rows[int(i)], origin], f.c.components, [[0, 1]])[1][0]
    near(lost, loss)
    near(lost, f.distortion)


def spread_line(f, n, things, ours, pca, worst, pca_worst):
    of_things(f, n, things)
    near(ours, f.losses.mean())
    near(pca, f.pca.mean())
    near(worst, f.distortion)
    near(pca_worst, f.pca.max())


def table_row(f, d, k, n, worst, lower, gap):
    assert (int(d), int(k), number(n)) == (f.X.shape[1], f.k, len(f.X))
    near(worst, f.distortion)
    below(lower, f.lower)
    assert f.gap * 100 <= number(gap) + 1e-7


def prefix_row(f, k, worst, lower, *_):
    near(worst, f.prefixes[int(k)][0])
    below(lower, f.prefixes[int(k)][1])


def capped_text(f, cap, kept, most):
    near(cap, f.cap)
    below(kept, f.kept)
    above(most, f.kept_bound)


def ended(f, tol):
    assert f.gap > number(tol)


def floor_row(f, k, floor, pca):
    # The weights prove a floor at any k, and fewer dimensions lose no less.
    x = unit(f.points, f.c.weighted_pairs)
    moment = x.T @ (f.c.weights[:, None] * x)
    own = 1.0 - np.linalg.eigvalsh(moment)[-int(k) :].sum()
    stated = max([own, *(v[1] for n, v in f.prefixes.items() if int(k) <= n)])
    assert number(floor) <= stated + 1e-7 or f.c.prefixes
    axes = np.linalg.svd(f.X - f.X.mean(axis=0))[2][: int(k)]
    lost = brute_losses(f.points, axes, f.pairs)[1].max()
    assert abs(number(pca) - lost) < 1e-3
    assert number(floor) <= number(pca) + 1e-4


def pair_row(f, i, j, ours, pca):
    j = int(j) if j.isdigit() else len(f.X)
    losses = brute_losses(f.points, f.c.components, [[int(i), j]])[1]
    assert abs(number(ours) - 100 * losses[0]) < 0.006


N, D, W = r"([\d,]+)", r"([\d,]*\.?\d+)", r"(pairs and rows|pairs|rows)"
S = r"([\d.]+(?:e[+-]\d+)?)"
STATIC = [
    r"The lower bound is proven, but the gap to it need not close: the problem is not "
    "convex",
    r"The guarantee is for the points the model was fitted on",
    r"No orthogonal projection reaches the shaded region",
    "The dashed line is the lower bound that this certificate proves at each number of "
    "dimensions; a fit to that number may prove more",
    "Every claim was recomputed from the data while this report was made, by code that "
    "knows no solver",
    r"The least possible distortion lies between the two",
    "Each has its own certificate, and its own bound on what any projection to as many "
    "dimensions could do",
    r"best distortion and best lower bound so far, \d+ rounds in [\d.]+ s",
    r"What is kept under the cap and the most that can be, \d+ rounds in [\d.]+ s",
    r"solver +\w+, \w+, \d+ steps, [\d.]+ s",
]
PATTERNS = [
    (
        rf"Every one of {N} ([a-z ]+) keeps at least {D}% of its squared length in {N} "
        rf"dimensions?; no projection can guarantee more than {D}%\.",
        every_one,
    ),
    (
        rf"No projection to {N} or fewer dimensions loses at most {D}% of every pair\.",
        excluded,
    ),
    (rf"Its first {N} dimensions? keeps? at least {D}%, of at most {D}%\.", first),
    (
        rf"Sampled: of all pairs, with 95 % confidence, at most {D}% (?:keep less|lose "
        r"more)\.",
        lambda f, share: f.share_above * 100 <= number(share),
    ),
    (
        rf"over +{N} of {N} pairs \(drawn by the maker\); sampled: of all pairs, with "
        rf"95 % confidence, at most {D}% lose more",
        over,
    ),
    (
        rf"It keeps {D}% of the variance; no projection under which no pair loses more "
        rf"than {D}% can keep more than {D}%\.",
        keeps,
    ),
    (rf"worst row +row {N} loses {D} of its squared length", worst_row),
    (rf"worst pair +rows {N} and {N} lose {D} of their squared distance", worst_line),
    (
        rf"lower bound +{D}(; the loss is at most (?:{D}% above|{D} times) the best "
        rf"possible)? \(proved by ([a-z ]+?) {W}\)",
        lower_line,
    ),
    (
        rf"gap +above --tol {D}: the search ended because neither the projection"
        " nor the bound improved",
        ended,
    ),
    (
        rf"kept +{D} of the variance, at most {D} under the cap {D}",
        lambda f, kept, most, cap: capped_text(f, cap, kept, most),
    ),
    (
        rf"(among them|to fitted points) +{N} {W}, the worst loses {D}, 99.9% lose "
        rf"at most {D}, mean {D}",
        heldout_line,
    ),
    (
        rf"If new points are drawn like the points fitted, a new point's distances to "
        rf"the {N} fitted points all lose at most {D} with probability {N} %, and at "
        rf"most {D} % of pairs of new points lose more than the certified {D} with {N} "
        r"% confidence\.",
        promised,
    ),
    (
        rf"some (?:pair|row) keeps at most {D}% in any projection to {N} dimensions?",
        much,
    ),
    (
        rf"the worst are {S} apart or less, others {S}: leave them out with "
        rf"--min-distance {S}",
        close,
    ),
    (
        rf"Over (?:all|the) {N} {W}, the worst loses {D} of its squared length\. "
        rf"((?:A weighted average over )?{N} of these {W}[^.]*) that "
        rf"no projection to {N} dimensions? loses less than {D}\.",
        told_proof,
    ),
    (
        rf"So the loss is at most {D}% above the best possible\.",
        lambda f, gap: above(gap, f.gap, 100),
    ),
    (
        rf"The cap was {D}; under it this projection keeps {D} of the variance, and "
        rf"none can keep more than {D}\.",
        capped_text,
    ),
    (r"PCA, under no cap, keeps [\d.]+\.", lambda f: None),
    (
        rf"Every one of {N} {W} is counted\. The mean loss is {D} here and {D} "
        rf"under PCA, the worst {D} and {D} \(dotted lines\)\.",
        spread_line,
    ),
    (rf"\| {N} to {N} \| {N} \| {D} \| {D} \| {D}% \|", table_row),
    (rf"\| first {N} \| {D} \| {D} \|(?: {D} \|)?", prefix_row),
    (rf"^first {N} +{D} +{D} +{D}%$", prefix_row),
    (rf"^\| {N} \| {D} \| {D} \|$", floor_row),
    (rf"^\| {N} and ({N[1:-1]}|the origin) \| {D}% \| {D}% \|$", pair_row),
]
PATTERNS = [(re.compile(p, re.MULTILINE), check) for p, check in PATTERNS]
# What a figure or a claim looks like. Tables of audits, parameters and versions have
# figures of their own tests.
CLAIMS = re.compile(
    r"\d\.\d|\d ?%|prove|no projection|no pair|at most|at least|guarantee|exact|"
    r"every one|confidence|probability",
    re.IGNORECASE,
)
SKIPPED = re.compile(
    r"^\| (isoproj|PCA|random|loses|k|pair|dimensions|[a-z\\_-]+|fingerprint[a-z ]*) \|"
    r".*$|^saved .*$|^```[\s\S]*?^```$|^\|?-.*$",
    re.MULTILINE,
)


def check_text(text, figures, patterns=PATTERNS):
    """Check every sentence; return how many were checked, none may be left."""
    n_checked = 0
    for pattern, check in patterns:
        for found in pattern.finditer(text):
            assert check(figures, *found.groups()) is not False, found[0]
            n_checked += 1
        text = pattern.sub("", text)
    for known in STATIC:
        text = re.sub(known, "", text, flags=re.IGNORECASE)
    left = [line for line in text.splitlines() if CLAIMS.search(line)]
    assert not left, "\n".join(left)
    return n_checked


def plain(page):
    """Return the sentences of a page of HTML as text."""
    page = re.sub(r"<(style|svg|head).*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", page)).split())


@pytest.fixture(scope="module", params=SCENES)
def scene(request, tmp_path_factory):
    """Fit at the command line; return the folder, its text, the model and figures."""
    from isoproj.cli.program import main

    name = request.param
    folder = tmp_path_factory.mktemp(name)
    X = CENTRED if name in OF_ROWS else DIGITS
    X = np.unique(load_iris().data, axis=0) if name == "hull" else X
    for file, content in {"x": X, "pairs": LISTED}.items():
        np.save(folder / f"{file}.npy", content)
    np.savetxt(folder / "y.txt", CLASSES, "%d")
    np.savetxt(folder / "q.txt", QUERIES, "%d")
    options = [
        str(folder / o) if str(o).endswith((".npy", ".txt")) else str(o)
        for o in SCENES[name]
    ]
    saved = folder / "m.isoproj"
    with pytest.MonkeyPatch.context() as patch:
        told = []
        patch.setattr("sys.stdout.write", told.append)
        status = main(["fit", str(folder / "x.npy"), *options, "-o", str(saved)])
    assert status == 0
    kind = GuaranteedPCA if name == "guaranteed" else NearIsometricProjection
    model, rows = kind.load(saved), X
    if "heldout" in name:
        k, norms = model.n_components, model.include_norms
        quick = {"tol": 0.5, "random_state": 0}
        again = kind(k, heldout=30, include_norms=norms, **quick)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DuplicatePointsWarning)
            split = again.fit(X).heldout_
        rows = X[split.training]
    figures = Figures(name, rows, model)
    figures.all_rows = X
    if "heldout" in name:
        figures.held, figures.training = split.rows, split.training
    return folder, "".join(told), model, rows, figures


def test_the_certificate_and_its_figures(scene):
    *_, model, _, figures = scene
    assert model.distortion_ == pytest.approx(figures.distortion, abs=1e-9)
    assert model.lower_bound_ == pytest.approx(figures.lower, abs=1e-9)
    assert figures.c.proof == max(figures.proofs, key=figures.proofs.get)
    assert check_text(str(model.certificate_), figures) >= 1


def test_the_command_line(scene, run):
    folder, told, _, rows, figures = scene
    assert check_text(SKIPPED.sub("", told), figures) >= 3
    np.save(folder / "rows.npy", rows)
    status, out, _ = run("verify", folder / "m.isoproj", folder / "rows.npy")
    assert status == 0
    assert check_text(out[out.index("verified:") :], figures) >= 1


def test_the_report_in_three_formats_and_the_notebook(scene):
    *_, model, rows, figures = scene
    made = model.report(rows)
    text = SKIPPED.sub("", made.markdown())
    assert check_text(text, figures) >= 5
    facts = made.to_dict()
    assert check_text(facts["sentence"], figures) >= 1
    bounds = facts["certificate"]
    assert bounds["distortion"] == pytest.approx(figures.distortion, abs=1e-9)
    assert bounds["lower_bound"] == pytest.approx(figures.lower, abs=1e-9)
    assert figures.proofs[bounds["proof"]] == figures.lower
    # Pages say in paragraphs what Markdown says, sentence by sentence.
    markdown = " ".join(made.markdown().replace("**", "").split())
    for page in (made.html(), model._repr_html_()):
        for said in re.findall(r"<(?:p|h1)>(.*?)</(?:p|h1)>", page, re.DOTALL):
            sentence = plain(said)
            if CLAIMS.search(sentence) and "PCA and one random" not in sentence:
                assert sentence in markdown


@pytest.mark.parametrize("scale", [1.0, 1e-20, 1e100])
def test_what_is_said_of_close_pairs_is_true_at_every_scale(scale, tmp_path, run):
    line = np.zeros((20, 40))
    line[:, 0] = 20.0 * np.arange(20)
    near = line + 0.1 * np.random.default_rng(0).normal(size=line.shape)
    X = scale * np.vstack([line, near])
    np.save(tmp_path / "x.npy", X)
    asked = ("fit", tmp_path / "x.npy", "-k", 1, *QUICK)
    status, out, _ = run(*asked, "-o", tmp_path / "m.isoproj")
    assert status == 0
    model = NearIsometricProjection.load(tmp_path / "m.isoproj")
    found = re.search(
        rf"the worst are {S} apart or less, others {S}: .*-min-distance {S}$", out, re.M
    )
    close(Figures("close", X, model), *found.groups())
    status, left, _ = run(*asked, "--min-distance", found[3])
    assert status == 0
    assert "min-distance" not in left


def test_no_fewer_pairs_are_advised_where_a_kind_was_chosen(tmp_path, run):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(40, 30)))
    for kind in ("sample", "neighbors"):
        status, out, _ = run(
            "fit", tmp_path / "x.npy", "-k", 1, "--pairs", kind, *QUICK
        )
        assert status == 0
        assert out.rstrip().endswith("take more dimensions")


def test_a_row_that_is_the_origin_is_no_copy():
    X = np.vstack([DIGITS[:20], DIGITS[:1], np.zeros((1, 64))])
    for pairs, norms, told, counted in (
        ("all", False, "1 pair of identical points.", "230, 1 identical"),
        (
            *("all", True, "1 pair of identical points, 1 row of zeros."),
            "251, 2 identical or zero",
        ),
        ("directions", False, "counted: 1 row of zeros.", "21, 1 zero"),
    ):
        model = NearIsometricProjection(
            2, pairs=pairs, include_norms=norms, tol=0.5, random_state=0
        )
        with pytest.warns(DuplicatePointsWarning, match=told):
            model.fit(X)
        claims = {claim.name: claim for claim in check_claims(model, X)}
        claim = claims["pairs that count"]
        assert claim.stated == claim.found == counted


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "distance"),
        ({"pairs": "sample"}, "sampled distance"),
        ({"pairs": "directions"}, "length"),
        ({"include_norms": True, "min_distance": 3.7}, "distance or length"),
    ],
)
def test_one_pair_is_not_every_one_of_many(options, told):
    X = np.array([[0.0, 0.0, 0.0], [3.0, 2.0, 0.0]])
    model = NearIsometricProjection(1, random_state=0, **options)
    if "min_distance" in options:
        X[0, 2] = 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DuplicatePointsWarning)
        model.fit(X)
    sentence = str(model.certificate_)
    assert sentence.startswith(f"The only {told} that counts keeps at least 100.00% ")


def test_audits_name_the_origin():
    X = CENTRED[:20] + 1.0
    axes = np.eye(64)[:3]
    told = str(audit(X, axes, orientation="rows", pairs="directions"))
    i = brute_losses(np.vstack([X, np.zeros(64)]), axes, [[i, 20] for i in range(20)])
    assert f"(points {i[1].argmax()} and the origin)" in told
    assert told.startswith("rows  ")


def test_curves_over_a_sample_say_so(tmp_path, run):
    X = np.random.default_rng(0).normal(size=(900, 4))
    np.save(tmp_path / "x.npy", X)
    given = (tmp_path / "x.npy", "--pairs", "sample", "--seed", 0)
    status, out, _ = run("curve", *given, "-k", 1, 4, "--targets", 0.5)
    assert status == 0
    assert "worst sampled pair loses" in out
    assert "4 dimensions suffice; 1 or fewer cannot do it (sampled pairs)" in out
    curve = distortion_curve(X, [1, 4], pairs="sample", random_state=0)
    every = brute_losses(X, curve.components(1))[1]
    share = re.search(rf"95 % confidence, at most {D}% lose more", out)[1]
    assert (every > curve.distortion[0]).mean() * 100 <= number(share)
    status, out, _ = run("frontier", *given, "-k", 2, "--n-points", 2)
    assert status == 0
    assert "worst sampled pair loses" in out
    assert "95 % confidence" in out


def test_no_loss_is_a_negative_zero():
    X = np.random.default_rng(0).normal(size=(24, 7)).astype(np.float32)
    for pairs in ("all", "directions"):
        model = NearIsometricProjection(6, pairs=pairs, tol=0.5, random_state=0).fit(X)
        assert not re.search(r"-0[.%]", model.report(X).markdown())


# Options of a plan, by scene; those about queries need some.
PLANS = {
    "stored rows": {},
    "queries": {"queries": True},
    "queries alone": {"queries": True, "stored": False},
    "share": {"queries": True, "share": 0.6},
    "cosine": {"queries": True, "metric": "cosine", "confidence": 0.9},
    "cosine, share": {"metric": "cosine", "share": 0.6},
    "other score": {"queries": True, "score": "cosine"},
    "one neighbour": {"queries": True, "n_neighbors": 1},
}
STORED, ASKED = np.split(np.random.default_rng(6).normal(size=(160, 12)), [120])


def distances(rows, asked, metric):
    """Return how far all rows are from what is asked for; inf from themselves."""
    if metric == "cosine":
        asked, rows = (a / np.linalg.norm(a, axis=1)[:, None] for a in (asked, rows))
    far = np.linalg.norm(asked[:, None] - rows, axis=2)
    np.fill_diagonal(far, np.inf if asked.shape == rows.shape else far.diagonal())
    return far


class Planned:
    """What is true of a plan, by searches through all rows; no distances tie."""

    def __init__(
        self,
        vectors,
        reduced,
        n_neighbors=10,
        *,
        metric="euclidean",
        score=None,
        share=1.0,
        confidence=0.95,
    ):
        (rows, _), self.n = vectors, n_neighbors
        self.metric, self.score = metric, score or metric
        self.sizes = rows.shape[0], reduced[0].shape[1], rows.shape[1]
        self.level, self.wanted = confidence, math.ceil(share * n_neighbors - 1e-9)
        self.found, self.needed, self.stretch = {}, {}, None
        for who, at in (("stored rows", 0), ("queries", 1)):
            if vectors[at] is None:
                continue
            before = distances(rows, vectors[at], metric)
            after = distances(reduced[0], reduced[at], self.score)
            true = before.argsort(axis=1)[:, :n_neighbors]
            returned = after.argsort(axis=1)
            # After how many rows each neighbour is among those returned.
            places = returned.argsort(axis=1)
            self.found[who] = 1 + np.take_along_axis(places, true, axis=1)
            last = np.sort(self.found[who], axis=1)[:, self.wanted - 1]
            self.needed[who] = np.maximum(last, n_neighbors)
            if who == "stored rows":
                far = np.take_along_axis(before, returned, axis=1)[:, :-1]
                self.stretch = (far / np.sort(before, axis=1)[:, :-1]).max()

    @property
    def new_query(self):
        needed = np.sort(self.needed["queries"])
        return needed[math.ceil((needed.size + 1) * self.level - 1e-9) - 1]

    def has_its(self, text):
        if self.n == 1:
            return text == "its neighbour"
        whole = self.wanted == self.n
        share = "all" if whole else f"at least {self.wanted} of"
        return text == f"{share} its {self.n} neighbours"


def plan_head(f, n, metric, *rest):
    *sizes, score = rest
    assert (int(n), metric, score) == (f.n, f.metric, f.score)
    assert tuple(map(number, sizes)) == f.sizes


def plan_rows(f, m, its, half, most, hardest):
    needed = f.needed["stored rows"]
    assert f.has_its(its)
    assert number(m) == needed.max() == needed[int(hardest)]
    for share, told in ((0.5, number(half)), (0.99, number(most))):
        assert (needed <= told).mean() >= share
        assert (needed < told).mean() < share + 1.0 / needed.size


def plan_query(f, m, its, level, n):
    assert f.has_its(its)
    assert number(m) == f.new_query
    below(level, f.level, 100)
    assert number(n) == f.needed["queries"].size


def plan_fewest(f, n, *told):
    assert int(n) == f.n
    told = dict(zip(told[1::2], told[::2], strict=True))
    assert set(told) - {None} == set(f.found)
    for who, found in f.found.items():
        below(told[who], (found <= f.n).mean())


def plan_ratio(f, most):
    above(most, f.ratio)
    assert 1.0 < f.stretch <= f.ratio + 1e-9


def plan_row(f, who, level, m, half, most, share):
    who = "queries" if level else "stored rows"
    needed = f.needed[who]
    assert number(m) == (f.new_query if level else needed.max())
    if level:
        below(level, f.level, 100)
    assert (needed <= number(half)).mean() >= 0.5
    assert (needed <= number(most)).mean() >= 0.99
    below(share, (f.found[who] <= f.n).mean())


def plan_number(f, m, who, n, own):
    f.told = int(m) + bool(own)
    f.asked_for = int(n)
    assert int(n) == f.n + bool(own)
    assert (who == "stored rows") == bool(own)
    assert number(m) == f.planned


def plan_setting(f, name, value):
    if name in ("k", "limit", "LIMIT"):
        assert number(value) == f.told
    elif name == "refine_factor":
        assert f.told <= number(value) * f.asked_for < f.told + f.asked_for
    else:
        assert int(number(value) * f.asked_for) == f.told


def cheapest(f, method, k, code, score, n_bytes, m, wanted):
    """Take the vectors of the option named, and count for both halves of queries."""
    vectors = [some[:, : int(k)] for some in (STORED, ASKED)]
    assert method == f"first:{k}"
    bits, code_of = FORMATS[code]
    assert number(n_bytes) == math.ceil(bits * int(k) / 8)
    # The data are scaled by a power of two before numbers of 16 bits round them.
    scale = 2.0 ** -math.frexp(max(abs(some).max() for some in vectors))[1]
    vectors = [scale * some for some in vectors]
    reduced = [some.astype(float) for some in map(code_of(vectors[0]), vectors)]
    chose, judged = (
        Planned(
            (STORED, ASKED[half]),
            (reduced[0], reduced[1][half]),
            5,
            score=score,
            confidence=0.9,
        )
        for half in (slice(20), slice(20, 40))
    )
    ranks = chose.found["queries"]
    assert (ranks <= number(m)).mean() >= number(wanted) == f.wanted_share
    assert number(m) == 5 or (ranks <= number(m) - 1).mean() < f.wanted_share
    f.__dict__ |= judged.__dict__ | {"planned": number(m)}
    f.found.pop("stored rows")


ITS = r"(its neighbour|all its \d+ neighbours|at least \d+ of its \d+ neighbours)"
PLAN_PATTERNS = [
    (
        rf"^Cheapest \(\*\): (\S+), k = {N}, (\w+), (\w+): {N} bytes a vector, {N} "
        rf"candidates for {D} of the neighbours on average\.",
        cheapest,
    ),
    (
        rf"^Queries that had no part in the choice find at least {D} with as many\.",
        lambda f, share: below(share, (f.found["queries"] <= f.planned).mean()),
    ),
    (
        rf"^{N} neighbours? \((\w+)\) among {N} rows, by {N} instead of {N} numbers a "
        r"row \((\w+)\)$",
        plan_head,
    ),
    (
        rf"^Fetch {N} besides the row itself: then every stored row has {ITS} among "
        rf"them\. Half of the rows need at most {N}, 99 % at most {N}; row {N} needs "
        r"most\.$",
        plan_rows,
    ),
    (
        rf"^Fetch {N}: then a new query has {ITS} among them with probability at least "
        rf"{D} %, if it is drawn like these {N} queries\.$",
        plan_query,
    ),
    (
        rf"^Fetch {N} only: the share of neighbours found is at least {D} \((stored "
        rf"rows|queries)\)(?: and {D} \((queries)\))?\.$",
        plan_fewest,
    ),
    (
        rf"^Proved: the i-th row returned to a stored row is at most {D} times as far "
        r"as its true i-th neighbour, for every i, without a look at the full "
        r"vectors\.$",
        plan_ratio,
    ),
    (
        rf"(every stored row|a new query, {D} %) +{N} +{N} +{N} +{D}",
        plan_row,
    ),
    (
        rf"^Settings for {N} candidates of (new queries|stored rows): ask for {N}( and "
        r"drop the row itself)?\.$",
        plan_number,
    ),
    (
        rf"\b(k_factor|limit|oversampling|LIMIT|refine_factor|k|oversample|"
        rf"oversample_factor) = {D}\b",
        plan_setting,
    ),
    (
        rf"half need +99 % need +found if {N} are fetched",
        lambda f, n: int(n) == f.n,
    ),
]
PLAN_PATTERNS = [(re.compile(p, re.MULTILINE), check) for p, check in PLAN_PATTERNS]


@pytest.fixture(scope="module")
def reducing():
    return NearIsometricProjection(4, tol=0.5, random_state=0).fit(STORED)


@pytest.mark.parametrize("scene", PLANS)
def test_plans(scene, reducing, tmp_path, run):
    options = dict(PLANS[scene])
    asked = ASKED if options.pop("queries", False) else None
    stored, n = options.pop("stored", True), options.pop("n_neighbors", 10)
    axes = reducing.components_.T
    reduced = STORED @ axes, None if asked is None else asked @ axes
    f = Planned((STORED, asked), reduced, n, **options)
    # A query that is not stored has no neighbour to leave out.
    if not stored:
        f.found.pop("stored rows")
    f.planned = f.needed["stored rows"].max() if asked is None else f.new_query
    kept = 1.0 - brute_losses(STORED, reducing.components_)[1].max()
    f.ratio = 1.0 / math.sqrt(kept)
    plan = search_plan(STORED, reducing, n, asked, stored=stored, **options)
    lines = 2 + stored + (asked is not None) + (plan.ratio is not None)
    assert check_text(str(plan), f, PLAN_PATTERNS) == lines
    is_euclidean = f.metric == f.score == "euclidean"
    assert (plan.ratio is not None) == is_euclidean
    page = re.sub("</t[hd]>", " ", plan._repr_html_())
    n_checked = check_text(plain(page), f, PLAN_PATTERNS)
    assert n_checked == 1 + stored + (asked is not None)
    for name, some in (("x", STORED), ("q", ASKED)):
        np.save(tmp_path / f"{name}.npy", some)
    reducing.save(tmp_path / "m.isoproj")
    reducing.save(tmp_path / "n.isoproj")
    words = [word for o, v in options.items() for word in (f"--{o}", v)]
    words += ["--queries", tmp_path / "q.npy"] * (asked is not None)
    words += ["--queries-only"] * (not stored)
    shown = tmp_path / "m.isoproj", tmp_path / "x.npy", "-n", n, *words
    status, out, _ = run("plan", *shown)
    assert status == 0
    assert str(plan) in out
    assert check_text(out, f, PLAN_PATTERNS) >= lines + 7
    status, out, _ = run("plan", tmp_path / "n.isoproj", *shown)
    assert status == 0
    assert check_text(out, f, PLAN_PATTERNS) == 1 + 2 * (stored + (asked is not None))


@pytest.mark.parametrize("wanted", [0.8, 0.99])
def test_choices_of_plans(wanted, tmp_path, run):
    for name, some in (("x", STORED), ("q", ASKED)):
        np.save(tmp_path / f"{name}.npy", some)
    words = ("first:3", "first:6", tmp_path / "x.npy", "--queries", tmp_path / "q.npy")
    status, out, _ = run(
        "plan", *words, "--recall", wanted, "-n", 5, "--confidence", 0.9
    )
    assert status == 0
    f = Planned((STORED, None), (STORED[:, :3], None), 5)
    f.wanted_share = wanted
    told = out[out.index("Cheapest") :]
    assert check_text(told, f, PLAN_PATTERNS) >= 12
