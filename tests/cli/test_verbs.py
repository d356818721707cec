from __future__ import annotations

import dataclasses
import io
import json
import re
import signal
import subprocess
import sys
import tempfile

import numpy as np
import pytest

from isoproj import Certificate, NearIsometricProjection, audit
from isoproj.files.write.writing import write_blocks
from isoproj.numerics.container import read_container
from isoproj.solvers.api import history_of_table

QUICK = ("--solver", "dual_ascent", "--max-iter", "10")


def test_fit_saves_a_certified_model(folder, run, checked, points):
    fit = ("fit", "points.npy", "-k", 3, "-o", "m.isoproj", "--json")
    status, out, err = run(*fit, *QUICK)
    assert status == 0, err
    payload = checked(out)
    model = NearIsometricProjection.load("m.isoproj")
    assert payload["distortion"] == model.distortion_
    assert payload["lower_bound"] == model.lower_bound_
    assert payload["worst_pairs"] == model.worst_pairs_.tolist()
    assert payload["data"]["n_points"] == len(points)
    assert "points.npy (npy): 40 points" in err


@pytest.mark.parametrize(
    "options", [(), ("--method", "guaranteed-pca"), ("--heldout", 0.2)]
)
def test_two_runs_give_the_same_file_apart_from_times(folder, run, options):
    def content(path, *seed):
        status, *_ = run("fit", "points.npy", "-k", 2, "-o", path, *options, *seed)
        assert status == 0
        header, tensors = read_container(path)
        # The digest is over the seconds of the history too.
        del header["digest"]
        steps = [
            dataclasses.replace(step, seconds=0.0)
            for step in history_of_table(tensors.pop("history"))
        ]
        return header, {name: a.tobytes() for name, a in tensors.items()}, steps

    first = content("first.isoproj")
    assert content("second.isoproj") == first
    assert content("third.isoproj", "--seed", 0) == first
    assert content("fourth.isoproj", "--random-state", 1) != first


def test_fit_measures_what_it_holds_out(folder, run, checked, points):
    status, out, err = run(
        *("fit", "points.npy", "-k", 3, "--heldout", "0.2", "--json"),
        *("--random-state", 0, *QUICK),
    )
    assert status == 0, err
    payload = checked(out)
    heldout = payload["heldout"]
    assert len(heldout["rows"]) == 8
    assert heldout["within"]["n_pairs"] == 28
    assert heldout["to_training"]["n_pairs"] == 8 * 32
    assert payload["n_pairs"] == 32 * 31 // 2
    again = NearIsometricProjection(
        3, solver="dual_ascent", max_iter=10, heldout=0.2, random_state=0
    ).fit(points)
    assert heldout["within"]["distortion"] == again.heldout_.distortion_within


def test_fit_refuses_to_hold_out_everything_in_one_line(folder, run):
    status, out, err = run("fit", "points.npy", "-k", 3, "--heldout", 39, *QUICK, "-q")
    assert status == 2
    assert "heldout must be a share" in err
    assert (err.count("\n"), out) == (1, "")


def test_what_is_loaded_projects_to_the_same_bits(folder, run, points):
    fitted = NearIsometricProjection(3, solver="dual_ascent", max_iter=10).fit(points)
    assert run("fit", "points.npy", "-k", 3, "-o", "m.isoproj", *QUICK)[0] == 0
    status, _, err = run("transform", "m.isoproj", "points.npy", "-o", "z.npy")
    assert status == 0, err
    projected = np.load("z.npy")
    assert projected.tobytes() == fitted.transform(points).tobytes()


@pytest.mark.parametrize("suffix", ["npy", "npz", "csv", "tsv", "safetensors", "fvecs"])
def test_transform_writes_what_the_extension_says(
    folder, run, checked, points, model, suffix
):
    from isoproj.files.read.reading import read_points

    status, out, _ = run(
        "transform", "model.isoproj", "points.npy", "-o", f"z.{suffix}", "--json"
    )
    assert status == 0
    assert checked(out)["output"]["format"] == suffix
    np.testing.assert_allclose(
        read_points(f"z.{suffix}").points,
        model.transform(points),
        rtol=1e-6 if suffix == "fvecs" else 0,
    )


def test_transform_in_a_pipe(folder, command, points, model):
    content = (folder / "points.npy").read_bytes()
    done = command("transform", "model.isoproj", "-", "-o", "-", input=content)
    assert done.returncode == 0, done.stderr
    projected = np.load(io.BytesIO(done.stdout))
    np.testing.assert_array_equal(projected, model.transform(points))


def test_large_files_are_projected_block_by_block(tmp_path, points, model):
    from isoproj.cli.transform import projected

    blocks = projected(model, points, slice_bytes=6 * 7 * 8)
    blocks = dataclasses.replace(blocks, parts=list(blocks.parts))
    assert [len(part) for part in blocks.parts] == [7] * 5 + [5]
    write_blocks(tmp_path / "z.npy", blocks)
    whole = np.load(tmp_path / "z.npy")
    np.testing.assert_allclose(whole, model.transform(points), rtol=1e-13)


def test_audit_measures_models_and_any_matrix(folder, run, checked, points):
    status, out, err = run("audit", "model.isoproj", "points.npy", "--json")
    assert status == 0, err
    payload = checked(out)
    expected = audit(points, Certificate.load("model.isoproj").components)
    assert payload["distortion"] == expected.distortion
    assert sum(payload["histogram"]["counts"]) == expected.n_pairs
    assert len(payload["histogram"]["edges"]) == len(payload["histogram"]["counts"]) + 1
    np.save("map.npy", np.eye(6)[:2] * 2)
    payload = checked(run("audit", "map.npy", "points.npy", "--json", "--worst", 3)[1])
    assert payload["distortion"] == audit(points, np.eye(6)[:2] * 2).distortion
    assert payload["stretch"] > 0
    assert len(payload["worst_pairs"]) == 3


def test_audit_fails_when_more_than_allowed_is_lost(folder, run, checked):
    arguments = ("audit", "model.isoproj", "points.npy", "--json", "--max-distortion")
    status, out, _ = run(*arguments, 0.01)
    assert status == 1
    assert not checked(out)["holds"]
    status, out, _ = run(*arguments, 1)
    assert status == 0
    assert checked(out)["holds"]


def test_verify_shows_every_claim(folder, run, checked):
    status, out, err = run("verify", "model.isoproj", "points.npy")
    assert status == 0, err
    text = out
    assert "verified: Every one of 780 distances" in text
    status, out, _ = run("verify", "model.isoproj", "points.npy", "--json")
    assert status == 0
    payload = checked(out)
    assert payload["verified"]
    for claim in payload["claims"]:
        assert re.search(rf"^{claim['name']} .* pass$", text, re.MULTILINE)


def test_verify_fails_on_other_data(folder, run, checked, points):
    np.save("other.npy", points + 1e-9)
    status, out, _ = run("verify", "model.isoproj", "other.npy", "--json")
    assert status == 1
    payload = checked(out)
    assert not payload["verified"]
    assert [c["name"] for c in payload["claims"] if not c["holds"]] == [
        "fingerprint of the data"
    ]
    status, out, _ = run("verify", "model.isoproj", "other.npy")
    assert status == 1
    assert "FAIL" in out
    assert "NOT verified" in out


def test_verify_refuses_a_tampered_byte(folder, run):
    content = bytearray((folder / "model.isoproj").read_bytes())
    content[-3] ^= 1
    (folder / "model.isoproj").write_bytes(content)
    status, out, err = run("verify", "model.isoproj", "points.npy")
    assert (status, out) == (2, "")
    assert "was changed after it was written" in err


def test_verify_accepts_a_bare_certificate(folder, run, model):
    model.certificate_.save("bare.isoproj")
    assert run("verify", "bare.isoproj", "points.npy")[0] == 0
    assert run("info", "bare.isoproj")[0] == 0
    assert run("audit", "bare.isoproj", "points.npy")[0] == 0
    status, _, err = run("transform", "bare.isoproj", "points.npy", "-o", "z.npy")
    assert status == 2
    assert "bare certificate" in err


def test_info_rounds_to_the_side_that_is_true(folder, run, model):
    # The bound would be rounded up, and the loss down, to the nearest digit.
    stated = {"distortion": 0.8765432104, "lower_bound": 0.7654321096}
    part = dataclasses.replace(
        model.certificate_, components=model.components_[:1], **stated
    )
    whole = dataclasses.replace(model.certificate_, **stated, prefixes=(part,))
    whole.save("bare.isoproj")
    out = run("info", "bare.isoproj")[1]
    assert "worst pair   loses at most 0.876544 (stated" in out
    assert "lower bound  0.765432\n" in out
    assert "first 1      loses at most 0.876544, lower bound 0.765432\n" in out


def test_info_tells_what_is_in_data_and_models(folder, run, checked):
    status, out, err = run("info", "points.npy", "--json")
    assert status == 0, err
    payload = checked(out)
    assert payload["data"]["n_features"] == 6
    payload = checked(run("info", "model.isoproj", "--json")[1])
    assert payload["model"]["estimator"] == "NearIsometricProjection"
    np.savez("two.npz", a=np.eye(3), b=np.eye(2))
    status, out, _ = run("info", "two.npz", "--json")
    payload = checked(out)
    assert status == 0
    assert payload["data"] is None
    assert "--array a" in payload["fault"]
    assert [c["name"] for c in payload["contents"]] == ["a", "b"]
    (folder / "t.csv").write_text("u,v\n1,2\n3,4\n")
    assert "holds u, v" in run("info", "t.csv")[1]


@pytest.mark.parametrize(
    "target",
    [
        "faiss",
        "halfvec",
        "npy",
        "onnx",
        "pgvector",
        "postgres",
        "safetensors",
        "sentence-transformers",
        "skops",
    ],
)
def test_export_writes_every_format(folder, run, checked, target):
    if target == "skops":
        pytest.importorskip("skops")
    status, out, err = run("export", "model.isoproj", "--to", target, "--json")
    assert status == 0, err
    payload = checked(out)
    written = folder / payload["output"]
    files = list(written.iterdir()) if written.is_dir() else [written]
    assert sum(file.stat().st_size for file in files) == payload["n_bytes"]
    assert run("export", "model.isoproj", "--to", target)[0] == 2
    assert run("export", "model.isoproj", "--to", target, "--force")[0] == 0


def test_export_never_writes_into_a_folder_with_other_files(folder, run):
    (folder / "mine").mkdir()
    (folder / "mine" / "thesis.txt").write_text("irreplaceable")
    asked = ("export", "model.isoproj", "--to", "sentence-transformers", "-o")
    status, _, err = run(*asked, "mine", "--force")
    assert status == 2
    assert "must be empty or an earlier export" in err
    assert [entry.name for entry in (folder / "mine").iterdir()] == ["thesis.txt"]
    assert run(*asked, "points.npy", "--force")[0] == 2
    assert run(*asked, "nowhere/deep")[0] == 2


def test_export_writes_the_matrix(folder, run):
    status, _, err = run("export", "model.isoproj", "--to", "npy", "-o", "matrix.npy")
    assert status == 0, err
    stored = Certificate.load("model.isoproj").components
    np.testing.assert_array_equal(np.load("matrix.npy"), stored)


def test_listed_pairs_and_directions_count_when_asked_for(folder, run, checked):
    (folder / "pairs.csv").write_text("0,1\n2,3\n4,5\n")
    fit = ("fit", "points.npy", "-k", 1, "--json", *QUICK)
    assert checked(run(*fit, "--pairs", "pairs.csv")[1])["n_pairs"] == 3
    assert checked(run(*fit, "--pairs", "directions")[1])["n_pairs"] == 40
    measured = run(
        "audit", "model.isoproj", "points.npy", "--json", "--pairs", "pairs.csv"
    )
    assert checked(measured[1])["n_pairs"] == 3


def test_rules_name_pairs_as_in_python(folder, run, checked, points):
    classes = np.arange(40) % 4
    (folder / "classes.txt").write_text("\n".join(f"c{c}" for c in classes))
    rules = {
        ("--pairs", "neighbors", "--neighbors", 3): {
            "pairs": "neighbors",
            "n_neighbors": 3,
        },
        ("--min-distance", 2.5, "--include-norms"): {
            "min_distance": 2.5,
            "include_norms": True,
        },
        ("--pairs", "labels", "--labels", "classes.txt"): {
            "pairs": "labels",
            "labels": classes,
        },
    }
    for words, options in rules.items():
        fit = ("fit", "points.npy", "-k", 2, "--json", *QUICK, "-o", "r.isoproj")
        told = checked(run(*fit, "--force", *words)[1])
        measured = run("audit", "r.isoproj", "points.npy", "--json", *words)
        model = Certificate.load("r.isoproj")
        result = audit(points, model.components, **options)
        assert told["n_pairs"] == result.n_pairs == checked(measured[1])["n_pairs"]
        assert told["n_close"] == result.n_close == checked(measured[1])["n_close"]
        assert told["distortion"] == pytest.approx(result.distortion, abs=1e-12)
        assert run("verify", "r.isoproj", "points.npy")[0] == 0
        stated = checked(run("info", "r.isoproj", "--json")[1])["model"]
        assert stated["include_norms"] == options.get("include_norms", False)
    status, _, err = run("fit", "points.npy", "-k", 2, "--pairs", "labels")
    assert (status, err.count("\n")) == (2, 2)
    assert "Add --labels FILE." in err


def test_names_of_features_travel_with_the_model(folder, run, points):
    from isoproj.files.write.writing import write_points

    names = [f"f{i}" for i in range(6)]
    write_points("named.csv", points, names=names)
    assert run("fit", "named.csv", "-k", 2, "-o", "m.isoproj", *QUICK)[0] == 0
    assert NearIsometricProjection.load("m.isoproj").feature_names_in_.tolist() == names
    assert run("transform", "m.isoproj", "named.csv", "-o", "z.csv")[0] == 0
    assert run("transform", "m.isoproj", "points.npy", "-o", "z.npy")[0] == 0
    write_points("swapped.csv", points, names=[names[1], names[0], *names[2:]])
    status, _, err = run("transform", "m.isoproj", "swapped.csv", "-o", "y.csv")
    assert status == 2
    assert "column 0 is 'f1' where 'f0' is expected" in err
    columns = ("--columns", ",".join(names))
    assert run("transform", "m.isoproj", "swapped.csv", "-o", "y.csv", *columns)[0] == 0


def test_warnings_are_lines_and_part_of_the_json(folder, run, checked, points):
    np.save("copies.npy", np.vstack([points, points[:2]]))
    status, out, err = run("fit", "copies.npy", "-k", 2, "--json", *QUICK)
    assert status == 0
    assert len(checked(out)["warnings"]) == 1
    assert "not counted: 2 pairs of identical points." in err
    assert run("fit", "copies.npy", "-k", 2, "-q", *QUICK)[2] == ""


def _hear_ctrl_c():
    # A shell that started the tests in the background has told them to ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_ctrl_c_saves_the_best_certified_answer(folder, run, checked):
    words = ["fit", "points.npy", "-k", "2", "-o", "m.isoproj", "-v", "--json"]
    words += ["--solver", "dual_ascent", "--max-iter", "100000000"]
    with subprocess.Popen(
        [sys.executable, "-m", "isoproj", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_hear_ctrl_c,
    ) as process:
        for line in process.stderr:
            if line.startswith("step 3"):
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert checked(out)["status"] == "interrupted"
    assert run("verify", "m.isoproj", "points.npy")[0] == 0


def test_the_first_ctrl_c_is_answered_and_the_second_leaves(folder, tmp_path):
    # The certificate never ends, and does not let the main thread go.
    script = tmp_path / "busy.py"
    script.write_text(
        "import ctypes, sys\n"
        "from isoproj.cli.program import main\n"
        "from isoproj.estimators.geometry import Geometry\n"
        "Geometry.certify = lambda *_, **__: ctypes.CDLL(None).sleep(600)\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    words = ["fit", "points.npy", "-k", "2", "-o", "m.isoproj", "-v"]
    words += ["--solver", "dual_ascent", "--max-iter", "100000000"]
    with subprocess.Popen(
        [sys.executable, str(script), *words],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_hear_ctrl_c,
    ) as process:
        for line in process.stderr:
            if line.startswith("step 3"):
                break
        process.send_signal(signal.SIGINT)
        for line in process.stderr:
            if line.startswith("Stopping; certifying takes about 1 s."):
                break
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert rest.endswith("isoproj fit: stopped; nothing was written.\n")
    assert not (folder / "m.isoproj").exists()


def test_ctrl_c_before_any_answer_leaves_nothing(folder, run, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(NearIsometricProjection, "fit", stopped)
    status, out, err = run("fit", "points.npy", "-k", 2, "-o", "m.isoproj", "-q")
    assert (status, out) == (130, "")
    assert err == "isoproj fit: stopped; nothing was written.\n"
    assert not (folder / "m.isoproj").exists()


@pytest.mark.slow
def test_demo_compares_with_pca_and_random(command, checked):
    done = command("demo", "-k", 6, "--json")
    assert done.returncode == 0, done.stderr
    payload = checked(done.stdout.decode())
    assert set(payload["methods"]) == {"PCA", "random", "isoproj"}
    best = min(m["distortion"] for m in payload["methods"].values())
    assert payload["methods"]["isoproj"]["distortion"] == best
    assert payload["lower_bound"] <= best


def test_demo_on_fewer_digits(run, checked, monkeypatch):
    from isoproj.cli import demo as demonstrating
    from isoproj.files.read.reading import read_points

    few = read_points("digits")
    few = dataclasses.replace(few, points=few.points[:40])
    monkeypatch.setattr(demonstrating, "read_points", lambda _: few)
    status, out, _ = run("demo", "-k", 5, "--json", "-q")
    assert status == 0
    assert set(checked(out)["methods"]) == {"PCA", "random", "isoproj"}
    status, out, _ = run("demo", "-k", 5, "-q")
    assert status == 0
    assert "Worst pair: images" in out
    assert run("demo", "-k", 65)[0] == 2


def test_schemas_are_printed_and_valid(run):
    jsonschema = pytest.importorskip("jsonschema")
    for verb in ("fit", "transform", "audit", "verify", "info", "export", "demo"):
        status, out, _ = run("--schema", verb)
        assert status == 0
        jsonschema.Draft202012Validator.check_schema(json.loads(out))


def test_a_budget_of_memory_changes_no_answer(run, folder, checked, points):
    pytest.importorskip("h5py")
    from isoproj.files.write.writing import write_points

    write_points("points.h5", points)
    answers = []
    # Neither has room for distances, so that both look for pairs in the same way.
    for data, budget in (("points.npy", "6k"), ("points.h5", "0")):
        limit = ["--memory-limit", budget]
        model = f"{data}.isoproj"
        options = ["-k", 2, "--random-state", 0, "--tol", 0.5, "-q", *limit]
        assert run("fit", data, "-o", model, *options)[0] == 0
        assert run("verify", model, data, *limit)[0] == 0
        status, out, _ = run("audit", model, data, "--json", "-q", *limit)
        assert status == 0
        told = checked(out)
        answers.append({k: told[k] for k in ("distortion", "mean", "worst_pairs")})
        assert run("transform", model, data, "-o", f"{data}.z.npy", *limit)[0] == 0
        answers[-1]["projected"] = np.load(f"{data}.z.npy").tolist()
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("text", "size"), [("500M", 5e8), ("2gb", 2e9), ("1e3", 1e3), ("0", 0.0)]
)
def test_a_budget_may_have_a_unit(text, size):
    from isoproj.cli.arguments import build_parser

    words = ["audit", "m", "d", "--memory-limit", text]
    assert build_parser().parse_args(words).memory_limit == size


@pytest.mark.parametrize("text", ["much", "-1G", "nan", "G", ""])
def test_a_budget_that_is_none_is_refused_in_one_line(run, folder, text):
    status, out, err = run(
        "audit", "model.isoproj", "points.npy", f"--memory-limit={text}"
    )
    assert (status, out) == (2, "")
    assert "as in 500M or 8G" in err
    assert err.count("\n") == 1


def test_no_room_for_scratch_files_is_told_in_one_line(run, folder, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "nowhere"))
    words = ("model.isoproj", "points.npy", "--memory-limit", 0, "-q")
    status, out, err = run("audit", *words)
    assert (status, out) == (2, "")
    assert "must take a scratch file" in err
    assert err.count("\n") == 1
