from __future__ import annotations

import numpy as np
import pytest
import safetensors.numpy

from isoproj import GuaranteedPCA
from isoproj.cli.console import Console
from isoproj.numerics.progress import Step, tell
from isoproj.numerics.rounding import at_least, at_most

METHOD = ("--method", "guaranteed-pca")


@pytest.fixture(scope="module")
def saved(tmp_path_factory, points):
    """A model file of the method, on points whose mean is not zero."""
    folder = tmp_path_factory.mktemp("guaranteed")
    shifted = points * np.geomspace(4.0, 1.0, 6) + 3.0
    np.save(folder / "shifted.npy", shifted)
    model = GuaranteedPCA(2, random_state=0).fit(shifted)
    model.save(folder / "g.isoproj")
    return folder, model


@pytest.fixture
def inside(saved, monkeypatch):
    monkeypatch.chdir(saved[0])
    return saved[1]


def test_fit_tells_what_is_kept(folder, run, checked):
    options = ("-k", 2, "--slack", 0.1, "--random-state", 0, "-o", "g.isoproj")
    status, out, err = run("fit", "points.npy", *METHOD, *options, "--json")
    assert status == 0, err
    payload = checked(out)
    model = GuaranteedPCA.load("g.isoproj")
    assert model.slack == 0.1
    assert payload["method"] == "guaranteed-pca"
    assert payload["guarantee"] == {
        "objective": "variance",
        "cap": model.max_distortion_,
        "kept": model.kept_,
        "kept_bound": model.kept_bound_,
    }
    assert payload["n_components_lower_bound"] is None


def test_fit_says_what_is_kept(folder, run):
    options = ("-k", 2, "--max-distortion", 1, "--objective", "distortion")
    status, out, _ = run("fit", "points.npy", *METHOD, *options)
    assert status == 0
    assert "of squared length on average, at most" in out
    assert "under the cap 1.000000" in out


@pytest.mark.parametrize("method", [METHOD, ()])
def test_fit_finds_the_fewest_dimensions(folder, run, checked, method):
    status, out, _ = run(
        "fit", "points.npy", *method, "--max-distortion", 0.6, "--json"
    )
    assert status == 0
    payload = checked(out)
    assert payload["distortion"] <= 0.6
    assert payload["n_components"] >= payload["n_components_lower_bound"] > 1
    assert (payload["guarantee"] is None) == (method == ())


def test_an_impossible_cap_is_one_line_and_a_failed_claim(folder, run):
    options = ("-k", 1, "--max-distortion", 0.1, "-o", "g.isoproj")
    status, out, err = run("fit", "points.npy", *METHOD, *options, "-q")
    assert status == 1
    assert out == ""
    assert err.count("\n") == 1
    assert "max_distortion=0.1 is impossible in 1 dimensions" in err
    assert not (folder / "g.isoproj").exists()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((), "-k or --max-distortion"),
        (("-k", 2, "--max-distortion", 0.5), "need --method guaranteed-pca"),
        (("-k", 2, "--slack", 0.5), "--slack needs --method"),
        (("-k", 2, "--objective", "variance"), "--objective needs --method"),
        ((*METHOD, "-k", 2, "--solver", "minimax"), "--solver has no effect"),
        ((*METHOD, "-k", 2, "--slack", -1), "slack must be"),
        ((*METHOD, "-k", 2, "--max-distortion", 2), "--max-distortion must be"),
        ((*METHOD, "-k", 2, "--objective", "joy"), "invalid choice"),
    ],
)
def test_options_that_do_not_go_together_are_one_line(folder, run, arguments, match):
    status, out, err = run("fit", "points.npy", *arguments, "-q")
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert match in err


def test_info_verify_audit_and_transform_know_the_model(inside, run, checked):
    status, out, _ = run("info", "g.isoproj")
    assert status == 0
    kept, bound = at_least(inside.kept_, 6), at_most(inside.kept_bound_, 6)
    assert f"at least {kept} (variance), at most {bound} under the cap" in out
    payload = checked(run("info", "g.isoproj", "--json")[1])
    assert payload["model"]["guarantee"]["cap"] == inside.max_distortion_
    status, out, _ = run("verify", "g.isoproj", "shifted.npy", "--json")
    assert status == 0
    names = [claim["name"] for claim in checked(out)["claims"]]
    assert {"cap on every pair", "variance kept"} <= set(names)
    cap = inside.max_distortion_
    assert run("audit", "g.isoproj", "shifted.npy", "--max-distortion", cap)[0] == 0
    assert (
        run("transform", "g.isoproj", "shifted.npy", "-o", "z.npy", "--force")[0] == 0
    )
    shifted = np.load("shifted.npy")
    np.testing.assert_array_equal(np.load("z.npy"), inside.transform(shifted))


def test_exports_of_the_model_give_what_transform_gives(inside, run, checked, points):
    assert run("export", "g.isoproj", "--to", "safetensors", "--force")[0] == 0
    tensors = safetensors.numpy.load_file("g.safetensors")
    given = (points - tensors["mean"]) @ tensors["components"].T
    np.testing.assert_allclose(given, inside.transform(points), atol=1e-12)
    status, out, _ = run("export", "g.isoproj", "--to", "npy", "--force", "--json")
    assert status == 0
    assert "only the matrix" in checked(out)["warnings"][0]


def test_progress_does_not_mix_the_bounds_of_different_solves(capsys):
    console = Console(json=False, quiet=False, verbose=True)
    with console.progress("searching"):
        for distortion, bound in ((0.3, 0.2), (0.8, 0.5)):
            tell(
                Step(iteration=0, distortion=distortion, lower_bound=bound, seconds=0.0)
            )
    last = capsys.readouterr().err.splitlines()[-1]
    assert "worst pair loses 0.8000, lower bound 0.5000, gap 60.00%" in last
