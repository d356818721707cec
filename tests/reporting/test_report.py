from __future__ import annotations

import dataclasses
import html.parser
import json
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
from geometry import cloud
from numpy.testing import assert_allclose
from sklearn.datasets import load_digits, load_iris
from sklearn.decomposition import PCA

from isoproj import (
    GuaranteedPCA,
    NearIsometricProjection,
    Report,
    audit,
    guarantee_frontier,
    report,
)
from isoproj.baselines import PCAProjection
from isoproj.exceptions import ClaimError
from isoproj.numerics.rounding import at_least

pytest.importorskip("jinja2")

NASTY = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def digits():
    return load_digits().data[:150]


@pytest.fixture(scope="module")
def fitted(digits):
    return NearIsometricProjection(5, random_state=0).fit(digits)


@pytest.fixture(scope="module")
def made(fitted, digits):
    rest = load_digits().data[150:250]
    return fitted.report(
        digits, heldout=rest, labels=[f"{NASTY} {i}" for i in range(150)]
    )


@pytest.fixture(scope="module")
def capped(digits):
    """A model under a cap, on few images, with what other caps would keep."""
    points = digits[:25]
    model = GuaranteedPCA(4, random_state=0).fit(points)
    return points, model, guarantee_frontier(points, 4, 2, random_state=0)


class Page(html.parser.HTMLParser):
    """Collects elements and visible text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self.links, self.headings = [], [], [], []
        self.open = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "action", "xlink:href", "srcset"):
                self.links.append(value)
            assert not name.startswith("on")

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)
        if "h2" in self.open:
            self.headings.append(data)


def test_the_dict_survives_json(made):
    facts = made.to_dict()
    assert json.loads(made.json()) == facts
    assert facts["format"] == "isoproj report"


def test_the_sentence_is_the_certificates(made, fitted):
    assert made.to_dict()["sentence"] == str(fitted.certificate_) == str(made)


def test_every_figure_is_the_audits(made, fitted, digits):
    methods = {m["name"]: m for m in made.to_dict()["methods"]}
    pca = audit(digits, PCA(5).fit(digits))
    assert_allclose(methods["pca"]["distortion"], pca.distortion, rtol=1e-9)
    assert_allclose(methods["pca"]["mean"], pca.mean, rtol=1e-9)
    assert_allclose(methods["isoproj"]["mean"], audit(digits, fitted).mean, rtol=1e-9)
    assert methods["isoproj"]["distortion"] == fitted.distortion_
    assert {m["distortion_is"] for m in methods.values()} == {"exact"}
    counts = made.to_dict()["histogram"]["counts"]
    assert sum(counts["pca"]) == sum(counts["isoproj"]) == 150 * 149 // 2


def test_held_out_points_are_measured_with_the_same_maps(made, fitted, digits):
    rest = load_digits().data[150:250]
    methods = {m["name"]: m for m in made.to_dict()["heldout"]["methods"]}
    assert methods["isoproj"]["distortion"] == audit(rest, fitted).distortion
    expected = audit(rest, PCAProjection(5).fit(digits)).distortion
    assert_allclose(methods["pca"]["distortion"], expected, rtol=1e-9)


def test_the_floor_of_the_curve_is_below_every_projection(made, digits):
    curve = made.to_dict()["curve"]
    assert curve["k"] in curve["ks"]
    for k, floor, pca in zip(curve["ks"], curve["floor"], curve["pca"], strict=True):
        assert floor <= pca
        assert_allclose(pca, audit(digits, PCA(k).fit(digits)).distortion, rtol=1e-9)
    assert (np.diff(curve["floor"]) <= 0).all()


def test_a_curve_that_is_given_is_drawn(fitted, digits):
    curve = SimpleNamespace(ks=[4, 5], distortion=[0.9, 0.8], lower_bound=[0.7, 0.6])
    facts = fitted.report(digits, curve=curve).to_dict()["curve"]
    assert facts["isoproj"] == [0.9, 0.8]
    assert facts["floor"] == [0.7, 0.6]


def test_the_page_asks_the_network_for_nothing(made):
    page = Page(made.html())
    assert all(link.startswith("data:") for link in page.links)
    assert not {"script", "link", "iframe", "object"} & (set(page.tags) - {"link"})
    assert "http" not in re.sub(r"http-equiv", "", made.html())
    assert "url(" not in made.html()
    assert "default-src 'none'" in made.html()


def test_sections_come_in_the_order_of_importance(made):
    assert Page(made.html()).headings == [
        "The certificate",
        "How the loss spreads",
        "Fewer or more dimensions",
        "The worst pairs",
        "Points it has not seen",
        "How the bounds met",
        "Parameters and versions",
        "How to verify",
        "What this does not promise",
    ]


def test_every_chart_is_drawn_beside_text_and_for_phones(made):
    assert Page(made.html()).tags.count("svg") == 8


def test_worst_pairs_of_images_are_pictures(made, fitted):
    facts = made.to_dict()
    first = facts["worst_pairs"][0]
    assert first["pair"] == fitted.worst_pairs_[0].tolist()
    assert_allclose(first["isoproj"], fitted.distortion_, atol=1e-9)
    assert first["images"][0].startswith("iVBOR")
    assert Page(made.html()).tags.count("img") == 4 * len(facts["worst_pairs"])


def test_texts_of_users_are_shown_as_text(made, fitted, digits):
    named = fitted.report(
        digits,
        labels=[NASTY + "|`*_"] * 150,
        data_name=f"{NASTY}.npy",
        model_name='"><img src=x onerror=alert(1)>.isoproj',
        heldout=digits,
        heldout_name="</style><b>",
    )
    page = Page(named.html())
    assert "script" not in page.tags
    assert "b" not in page.tags
    assert all(link.startswith("data:") for link in page.links)
    assert f"{NASTY}.npy" in "".join(page.words)
    assert NASTY in "".join(Page(made.html()).words)
    outside = re.sub(r"```.*?```", "", named.markdown(), flags=re.DOTALL)
    assert "<script" not in outside.replace(r"\<", "")


def test_markdown_says_the_same(made):
    facts, text = made.to_dict(), made.markdown()
    assert facts["sentence"] in text
    assert f" {at_least(facts['certificate']['lower_bound'])} |" in text
    assert f"{facts['methods'][1]['distortion']:.4f}" in text
    for line in text.splitlines():
        assert "{" not in line


def test_without_data_only_what_the_model_states_is_told(fitted):
    bare = fitted.report()
    facts = bare.to_dict()
    assert facts["methods"] is None
    assert facts["claims"] is None
    assert "Nothing was recomputed" in bare.html()
    assert "Nothing was recomputed" in bare.markdown()
    assert report(fitted.certificate_).to_dict()["model"]["estimator"] is None


def test_a_report_names_the_proof_that_its_bound_rests_on():
    X = load_iris().data
    model = NearIsometricProjection(2, random_state=0, tol=0.5, n_restarts=0)
    certificate = model.fit(np.unique(X, axis=0)).certificate_
    assert certificate.proof == "hull"
    told = model.report().to_dict()["certificate"]
    assert (told["proof"], told["n_proving"]) == (
        "hull",
        len(certificate.hull.hull_pairs),
    )
    for text in (model.report().html(), model.report().markdown()):
        said = (
            f"{told['n_proving']:,} of these pairs, which point in all directions of a"
        )
        assert f"{said} subspace of 3 dimensions, prove" in text
        assert "weighted" not in text
    weighed = dataclasses.replace(certificate, hull=None)
    told = report(weighed).to_dict()["certificate"]
    assert (told["proof"], told["n_proving"]) == ("fantope", weighed.weights.size)
    said = f"A weighted average over {weighed.weights.size:,} of these"
    assert said in report(weighed).html()


def test_bounds_are_rounded_to_the_side_on_which_they_hold(fitted):
    stated = dataclasses.replace(
        fitted.certificate_, lower_bound=0.49999, distortion=0.500011
    )
    text = report(stated).markdown()
    assert "loses less than 0.4999." in text
    assert "| 0.5000 | 0.4999 | 0.01% |" in text


def test_other_data_are_refused(fitted, digits):
    with pytest.raises(ClaimError, match="fingerprint of the data does not hold"):
        fitted.report(digits[::-1])


def test_a_forged_bound_is_refused_even_without_a_walk(fitted, digits):
    forged = dataclasses.replace(fitted.certificate_, lower_bound=0.99)
    with pytest.raises(ClaimError, match="lower bound does not hold"):
        report(forged, digits, max_pairs=100)


def test_many_pairs_are_sampled_and_the_report_says_so(fitted, digits):
    sampled = fitted.report(digits, max_pairs=1000)
    facts = sampled.to_dict()
    assert facts["histogram"]["sampling"]["n_rows"] == 45
    assert not facts["claims"]["all_pairs"]
    whole = {m["name"]: m for m in fitted.report(digits).to_dict()["methods"]}
    for method in facts["methods"]:
        assert method["distortion"] <= whole[method["name"]]["distortion"] + 1e-12
    assert facts["methods"][0]["distortion"] == fitted.distortion_
    assert "Sampled: 990 pairs of 45 rows" in sampled.html()
    assert f"≥ {facts['methods'][1]['distortion']:.4f}" in sampled.html()
    assert facts["pca_worst_pairs"] is None


@pytest.mark.parametrize("pairs", ["directions", [[0, 1], [3, 2], [4, 9]]])
def test_other_kinds_of_pairs_have_reports_too(pairs):
    X = cloud(3, 12, 5)
    model = NearIsometricProjection(2, pairs=pairs, random_state=0).fit(X)
    facts = model.report(X, labels=list("abcdefghijkl")).to_dict()
    expected = audit(X, PCA(2).fit(X), pairs=pairs).n_pairs
    assert facts["data"]["n_pairs"] == expected
    assert sum(facts["histogram"]["counts"]["pca"]) == expected
    assert "a fitted model" in model.report(X).html()


def test_sparse_data_and_full_rank_have_reports():
    X = scipy.sparse.random_array((15, 40), density=0.2, rng=np.random.default_rng(0))
    model = NearIsometricProjection(3, random_state=0).fit(X.tocsr())
    assert model.report(X.tocsr()).to_dict()["worst_pairs"][0]["images"] is None
    X = cloud(1, 10, 3)
    everything = NearIsometricProjection(3).fit(X)
    assert "100.00%" in everything.report(X).html()


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"labels": ["a"]}, "every one of 150 points; got 1"),
        ({"image_shape": (3, 3)}, "64 features; got 3 x 3"),
        ({"heldout": np.eye(3)}, "64 features; got 3"),
    ],
)
def test_options_that_do_not_fit_are_told(fitted, digits, options, part):
    with pytest.raises(ValueError, match=part):
        fitted.report(digits, **options)


def test_what_is_kept_under_a_cap_is_told(capped, tmp_path):
    points, model, _ = capped
    made = model.report(points)
    facts = made.to_dict()
    assert facts["guarantee"]["kept"] == model.kept_ <= model.kept_bound_
    variance = {m["name"]: m["variance"] for m in facts["methods"]}
    assert_allclose(variance["isoproj"], model.kept_, rtol=1e-9)
    ratios = PCA(4).fit(points).explained_variance_ratio_
    assert_allclose(variance["pca"], ratios.sum(), rtol=1e-9)
    last = facts["kept_history"][-1]
    assert_allclose(last["lower"], model.kept_, atol=1e-6)
    assert last["lower"] <= last["upper"]
    assert Page(made.html()).tags.count("svg") == 10
    assert f"{model.max_distortion_:.4f}" in made.markdown()
    model.save(tmp_path / "m.isoproj")
    back = GuaranteedPCA.load(tmp_path / "m.isoproj").report(points)
    assert back.to_dict()["kept_history"] == facts["kept_history"]


def test_what_other_caps_keep_is_drawn(capped):
    points, model, found = capped
    made = model.report(points, frontier=found)
    facts = made.to_dict()["frontier"]
    assert_allclose(facts["kept"], found.kept)
    assert_allclose(facts["kept_bound"], found.kept_bound)
    assert Page(made.html()).tags.count("svg") == 12
    for cap in found.max_distortion:
        assert f"| {cap:.4f} |" in made.markdown()
    for change, fault in (
        ({"components": model.components_[:3]}, "4 dimensions; got one for 3"),
        ({"fingerprint": "0" * 64}, "same X"),
    ):
        others = [dataclasses.replace(c, **change) for c in found.certificates]
        with pytest.raises(ValueError, match=fault):
            model.report(
                points, frontier=dataclasses.replace(found, certificates=others)
            )


def test_a_report_needs_a_certificate(digits):
    with pytest.raises(ValueError, match="with a certificate; got PCA"):
        report(PCA(2).fit(digits), digits)


def test_notebooks_show_the_certificate_once_it_is_there(fitted):
    shown = fitted._repr_mimebundle_()
    assert shown["text/html"] == fitted._repr_html_()
    assert "isoproj-report" in shown["text/html"]
    # Where a notebook is not trusted only text is left, without styles and drawings.
    assert "<svg" not in shown["text/html"]
    left = re.sub(r"<[^>]+>", "", shown["text/html"])
    assert f"points {fitted.certificate_.n_points}" in left
    assert "isoproj-report" not in NearIsometricProjection(2)._repr_html_()


def test_without_jinja_notebooks_show_what_scikit_learn_shows(fitted, monkeypatch):
    from isoproj.reporting import document

    document._environment.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert "isoproj-report" not in fitted._repr_html_()
    with pytest.raises(ImportError, match=r"isoproj\[report\]"):
        fitted.report().html()
    document._environment.cache_clear()


def test_a_report_is_saved_by_its_ending(made, tmp_path):
    for name in ("r.html", "r.md", "r.json"):
        made.save(tmp_path / name)
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert Report(json.loads((tmp_path / "r.json").read_text())).html() == made.html()
    with pytest.raises(ValueError, match=r"\.html, \.md or \.json; got"):
        made.save(tmp_path / "r.pdf")


def test_a_loaded_model_shows_how_it_converged(fitted, digits, tmp_path):
    fitted.save(tmp_path / "m.isoproj")
    back = NearIsometricProjection.load(tmp_path / "m.isoproj")
    assert (
        back.report(digits).to_dict()["history"]
        == (fitted.report(digits).to_dict()["history"])
    )
    assert "How the bounds met" in back.report().html()


@pytest.fixture(scope="module")
def judged(fitted, digits):
    """A report with maps by name, one of them with a name that is code."""
    maps = {"first 9": np.eye(9, 64), f"{NASTY} | pca": PCA(7).fit(digits)}
    return fitted.report(digits, maps=maps, recall=(1, 5), metric="cosine"), maps


def test_maps_by_name_are_measured_as_audit_measures_them(judged, fitted, digits):
    made, maps = judged
    rows = {row["name"]: row for row in made.to_dict()["maps"]["rows"]}
    assert list(rows) == ["isoproj", "pca", *maps]
    for name, given in {"isoproj": fitted.components_, **maps}.items():
        expected = audit(digits, given, recall=(1, 5), metric="cosine")
        assert rows[name]["distortion"] == expected.distortion
        assert rows[name]["mean"] == expected.mean
        assert rows[name]["recall"] == {str(k): v for k, v in expected.recall.items()}
        changed = expected.neighbors.nearest_changed
        assert rows[name]["nearest_changed"] == changed
    assert [row["n_components"] for row in rows.values()] == [5, 5, 9, 7]


def test_names_of_maps_are_shown_as_text(judged):
    page, text = judged[0].html(), judged[0].markdown()
    assert "Other maps" in Page(page).headings
    assert NASTY not in page
    assert "script" not in Page(page).tags
    table = text.split("## Other maps")[1].split("##")[0].strip().splitlines()[2:]
    assert {line.replace(r"\|", "").count("|") for line in table} == {9}


def test_a_map_that_takes_the_name_of_the_model_or_does_not_fit_is_refused(
    fitted, digits
):
    with pytest.raises(ValueError, match="must not be called 'pca'"):
        fitted.report(digits, maps={"pca": np.eye(3, 64)})
    with pytest.raises(ValueError, match="one column per feature, 64"):
        fitted.report(digits, maps={"other": np.eye(3, 65)})


def test_points_given_as_held_out_promise_something_of_new_ones(made, fitted, digits):
    promise = made.to_dict()["new_points"]
    rest = load_digits().data[150:250]
    # The 96th of 100 worst losses, each over all fitted points.
    worst = [
        max(
            1.0 - np.square(fitted.components_ @ gap).sum() / np.square(gap).sum()
            for gap in point - digits
        )
        for point in rest
    ]
    assert promise["new_point"] == pytest.approx(np.sort(worst)[95])
    assert "drawn like the points fitted" in promise["sentence"]
    assert promise["sentence"] in made.markdown()
    assert promise["sentence"].split("'")[0] in " ".join(Page(made.html()).words)


def test_a_fit_that_held_points_out_tells_its_promise_without_their_data(digits):
    model = NearIsometricProjection(9, heldout=30, random_state=0).fit(digits)
    fitted_rows = digits[model.heldout_.training]
    facts = model.report(fitted_rows).to_dict()
    assert facts["heldout"] is None
    assert facts["new_points"]["sentence"] == str(model.heldout_.guarantee())


def test_too_few_points_to_promise_anything_are_told(fitted, digits):
    few = fitted.report(digits, heldout=load_digits().data[150:160]).to_dict()
    assert few["new_points"]["new_point"] is None
    assert "19" in few["new_points"]["sentence"]
