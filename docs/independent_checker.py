"""Check a certificate without isoproj: python independent_checker.py MODEL X.npy."""

import hashlib
import json
import sys

import numpy as np
from safetensors import safe_open
from scipy.spatial import ConvexHull

N_FRESH = 100_000
PARTS = ("guarantee", "exclusion", "hull")


def directions(X, pairs):
    gaps = X[pairs[:, 0]] - X[pairs[:, 1]]
    return gaps / np.linalg.norm(gaps, axis=1)[:, None]


def pairs_that_count(X, claim, arrays):
    n, kind = claim["n_points"], claim["pair_kind"]
    i, j = np.triu_indices(n, 1)
    if kind in ("labels", "within-labels", "queries"):
        same = arrays["labels"][i] == arrays["labels"][j]
        i, j = (row[same == (kind == "within-labels")] for row in (i, j))
    pairs = arrays.get("listed_pairs", np.column_stack([i, j]))
    if len(X) > n:  # the origin is the last row
        norms = np.column_stack([np.arange(n), np.full(n, n)])
        pairs = norms if kind == "directions" else np.vstack([pairs, norms])
    distinct = pairs[(X[pairs[:, 0]] != X[pairs[:, 1]]).any(axis=1)]
    lengths = np.linalg.norm(X[distinct[:, 0]] - X[distinct[:, 1]], axis=1)
    counted = distinct[lengths >= claim.get("min_distance", 0.0)]
    stated = [claim["n_pairs"], claim["n_identical"], claim.get("n_close", 0)]
    left_out = [len(pairs) - len(distinct), len(distinct) - len(counted)]
    assert stated == [len(counted), *left_out], "pairs that count"
    return counted


def moment(X, pairs, weights, counted):
    assert (weights >= 0).all(), "weights are not negative"
    known = {*map(frozenset, counted.tolist())}
    assert {*map(frozenset, pairs.tolist())} <= known, "pairs that count"
    x = directions(X, pairs)
    return x.T @ (weights[:, None] * x)


def top_sum(matrix, k):
    return np.linalg.eigvalsh(matrix)[::-1][:k].sum()


def check_guarantee(claim, arrays, X, C, counted):
    stated = claim["guarantee"]
    if stated["objective"] == "variance":
        rows = X[: claim["n_points"]]
        whole = np.cov(rows, rowvar=False)
        whole = whole / np.trace(whole)
    else:
        whole = moment(X, counted, np.full(len(counted), 1 / len(counted)), counted)
    assert claim["distortion"] <= stated["cap"], "cap"
    assert abs(np.trace(C @ whole @ C.T) - stated["kept"]) <= 1e-9, "kept"
    w = arrays["multipliers"]
    most = whole + moment(X, arrays["capped_pairs"], w, counted)
    bound = top_sum(most, len(C)) - (1 - stated["cap"]) * w.sum()
    assert stated["kept_bound"] >= min(1, bound) - 1e-9, "kept bound"


def check_exclusion(claim, arrays, X, counted):
    stated, w = claim["exclusion"], arrays["excluding_weights"]
    k = stated["n_components"]
    assert k >= 1 and w.sum() > 0, "too few dimensions"
    bound = 1 - top_sum(moment(X, arrays["excluding_pairs"], w / w.sum(), counted), k)
    assert bound > stated["cap"], "too few dimensions"


def inradius(Y, corners, normals):
    """Return the distance of the nearest facet, once the facets surround the origin."""
    V = np.vstack([Y, -Y])[corners]
    # Any unit vector bounds the distance of a simplex from below.
    normals = normals / np.linalg.norm(normals, axis=1)[:, None]
    heights = (V @ normals[:, :, None]).min(axis=(1, 2)) - 1e-13
    assert (heights > 0).all(), "origin inside the hull"
    ordered = np.sort(corners, axis=1)
    ridges = [np.delete(ordered, j, axis=1) for j in range(Y.shape[1])]
    _, counts = np.unique(np.concatenate(ridges), axis=0, return_counts=True)
    assert (counts == 2).all(), "each ridge in two facets"
    # A ray that meets one facet only: then every ray meets one.
    at = np.abs(np.linalg.det(V)).argmax()
    ray = V[at].mean(axis=0)
    noise = 1e-12 * np.random.default_rng(0).standard_normal(V.shape)
    H = np.linalg.inv(V + noise)
    H /= np.linalg.norm(H, axis=1, keepdims=True)
    lift = np.maximum(0, 1e-13 - (V @ H).min(axis=1)) / heights[:, None]
    sides = np.einsum("fdj,d->fj", H, ray) + lift * (normals @ ray)[:, None]
    met = np.flatnonzero(~(sides < -1e-13).any(axis=1))
    assert met.tolist() == [at], "a ray meets one facet"
    return heights.min()


def hull_bound(claim, arrays, X, k, counted):
    B, pairs = arrays["hull_axes"], arrays["hull_pairs"]
    assert B.shape == (k + 1, X.shape[1]), "axes of the hull"
    gram = B @ B.T
    assert np.abs(gram - np.eye(k + 1)).max() <= 1e-8, "axes of the hull"
    known = {*map(frozenset, counted.tolist())}
    assert {*map(frozenset, pairs.tolist())} <= known, "pairs of the hull count"
    Y = directions(X, pairs) @ B.T
    hull = ConvexHull(np.vstack([Y, -Y]))
    r = inradius(Y, hull.simplices, hull.equations[:, :-1])
    bound = r**2 / np.linalg.eigvalsh(gram)[-1]
    assert abs(claim["hull"]["bound"] - bound) <= 1e-9, "bound of the hull"
    return bound


def fresh_pairs(X, claim, C):
    """Draw the 100,000 pairs that data and projection decide."""
    seed = hashlib.sha256(claim["fingerprint"].encode() + C.astype("<f8").tobytes())
    rng = np.random.default_rng(int.from_bytes(seed.digest()[:8], "little"))
    drawn = np.empty((0, 2), dtype=int)
    while len(drawn) < N_FRESH:
        more = rng.integers(len(X), size=(N_FRESH, 2))
        drawn = np.vstack([drawn, more[(X[more[:, 0]] != X[more[:, 1]]).any(axis=1)]])
    return drawn[:N_FRESH]


def chance_of_at_most(seen, n, share):
    """Return the binomial probability of `seen` or fewer among `n` draws."""
    i = np.arange(1, seen + 1)
    log_choose = np.concatenate([[0.0], np.cumsum(np.log((n - i + 1) / i))])
    i = np.arange(seen + 1)
    return np.exp(log_choose + i * np.log(share) + (n - i) * np.log1p(-share)).sum()


def check_sampled_share(claim, X, C):
    share = claim.get("sampled_share")
    if claim["pair_kind"] != "sample":
        assert share is None, "sampled share"
        return
    assert share is not None and 0 < share <= 1, "sampled share"
    losses = 1 - ((directions(X, fresh_pairs(X, claim, C)) @ C.T) ** 2).sum(axis=1)
    above = int((losses > claim["distortion"] + 1e-9).sum())
    # A share of 1 holds of itself.
    likely = share < 1 and chance_of_at_most(above, N_FRESH, share) > 0.05 * (1 + 1e-6)
    assert not likely, "sampled share"


def check_bounds(claim, arrays, X, C, counted):
    """Check what is claimed of a projection, all rows or a prefix of them."""
    pairs, weights, k = arrays["weighted_pairs"], arrays["weights"], len(C)
    losses = 1 - ((directions(X, counted) @ C.T) ** 2).sum(axis=1)
    assert abs(losses.max() - claim["distortion"]) <= 1e-9, "distortion"

    assert abs(weights.sum() - 1) <= 1e-9, "weights sum to one"
    bound = 1 - top_sum(moment(X, pairs, weights, counted), k)
    if claim.get("hull"):
        bound = max(bound, hull_bound(claim, arrays, X, k, counted))
    assert claim["lower_bound"] <= bound + 1e-9, "lower bound"
    assert claim["lower_bound"] <= claim["distortion"]
    check_sampled_share(claim, X, C)
    if claim.get("exclusion"):
        check_exclusion(claim, arrays, X, counted)
    if claim.get("guarantee"):
        check_guarantee(claim, arrays, X, C, counted)


def check(path, X):
    with safe_open(path, framework="numpy") as file:
        header = json.loads(file.metadata()["isoproj"])
        arrays = {name: file.get_tensor(name) for name in file.keys()}
    assert (header["format"], header["format_version"]) == ("isoproj", 1)
    claim = header["certificate"]
    C = arrays["components"].astype(np.float64)
    k = C.shape[0]

    X = np.asarray(X, dtype="<f8") + 0.0  # adding zero turns -0 into 0
    assert X.shape == (claim["n_points"], claim["n_features"]), "shape"
    shape = np.array(X.shape, dtype="<i8").tobytes()
    digest = hashlib.sha256(b"isoproj points 1\n" + shape + X.tobytes()).hexdigest()
    assert digest == claim["fingerprint"], "fingerprint"
    if claim["pair_kind"] == "directions" or claim.get("include_norms"):
        X = np.vstack([X, np.zeros(X.shape[1])])

    gram = C @ C.T
    allowed = 1e-10 if arrays["components"].dtype == np.float64 else 1e-5
    assert np.abs(gram - np.eye(k)).max() <= allowed, "orthonormal rows"
    assert np.linalg.eigvalsh(gram)[-1] <= 1 + 1e-11, "no stretching"

    counted = pairs_that_count(X, claim, arrays)
    check_bounds(claim, arrays, X, C, counted)
    last = 0
    for prefix in claim.get("prefixes", []):
        k, start = prefix["n_components"], f"first_{prefix['n_components']}_"
        assert last < k < len(C), "prefixes"
        own = {
            n.removeprefix(start): a for n, a in arrays.items() if n.startswith(start)
        }
        shared = {n: v for n, v in claim.items() if n not in PARTS}
        check_bounds({**shared, **prefix}, own, X, C[:k], counted)
        last = k
    return claim["lower_bound"], claim["distortion"]


if __name__ == "__main__":
    lower, upper = check(sys.argv[1], np.load(sys.argv[2]))
    print(f"holds: no projection below {lower:.6f}, this one {upper:.6f}")
