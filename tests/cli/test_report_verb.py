from __future__ import annotations

import json

import numpy as np
import pytest

from isoproj import audit

pytest.importorskip("jinja2")


def test_report_writes_one_page_and_says_what_it_holds(folder, run, checked):
    status, out, err = run(
        "report", "model.isoproj", "points.npy", "-o", "r.html", "--json"
    )
    assert status == 0, err
    told = checked(out)
    page = (folder / "r.html").read_text(encoding="utf-8")
    assert told["output"]["n_bytes"] == len(page.encode()) < 3_000_000
    assert told["sentence"] in page.replace("<strong>", "").replace("</strong>", "")
    assert told["recomputed"] is True


def test_file_names_and_labels_are_shown_as_text(folder, run, points):
    nasty = "<script>alert(1)<|script>.npy"
    np.save(nasty, points)
    (folder / "labels.txt").write_text("<b>bold</b>\n" * 40)
    status, _, err = run(
        *("report", "model.isoproj", nasty, "-o", "r.html"),
        *("--labels", "labels.txt", "--heldout", "points.npy"),
    )
    assert status == 0, err
    page = (folder / "r.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "<b>" not in page
    assert "&lt;script&gt;alert(1)&lt;|script&gt;.npy" in page
    assert "&lt;b&gt;bold&lt;/b&gt;" in page


def test_the_ending_decides_the_form(folder, run):
    for name in ("r.md", "r.json"):
        assert run("report", "model.isoproj", "points.npy", "-o", name)[0] == 0
    assert (folder / "r.md").read_text().startswith("# isoproj report: points.npy")
    facts = json.loads((folder / "r.json").read_text())
    assert facts["data"]["name"] == "points.npy"


def test_maps_by_name_and_their_recall_are_measured(folder, run, points):
    np.save("half.npy", np.eye(3, 6))
    asked = ("report", "model.isoproj", "points.npy", "-o", "m.json")
    wanted = ("--maps", "first:4", "half.npy", "--recall", 1, 5, "--metric", "cosine")
    assert run(*asked, *wanted)[0] == 0
    found = json.loads((folder / "m.json").read_text())["maps"]
    assert found["metric"] == "cosine"
    names = ["isoproj", "pca", "first:4", "half.npy"]
    assert [row["name"] for row in found["rows"]] == names
    expected = audit(points, np.eye(4, 6), recall=(1, 5), metric="cosine")
    row = found["rows"][2]
    assert row["distortion"] == expected.distortion
    assert row["recall"] == {"1": expected.recall[1], "5": expected.recall[5]}
    status, _, err = run(*asked, "--force", "--maps", "none.npy")
    assert status == 2
    assert "none.npy" in err


def test_other_caps_are_looked_for_on_demand(folder, run):
    asked = ("report", "model.isoproj", "points.npy", "-q", "--frontier", 2)
    assert run(*asked, "-o", "f.json")[0] == 0
    found = json.loads((folder / "f.json").read_text())["frontier"]
    assert len(found["cap"]) == 2
    assert found["kept"][0] < found["kept"][1]
    assert found["kept_bound"][0] >= found["kept"][0]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("-o", "r.pdf"), "must end in .html, .md or .json"),
        (("-o", "model.isoproj"), "must end in"),
        (("-o", "r.html", "--image-shape", "big"), "must look like 28x28"),
        (("-o", "r.html", "--image-shape", "4x5"), "6 features; got 4 x 5"),
        (("-o", "r.html", "--labels", "short.txt"), "each of the 40 points"),
        (("-o", "r.html", "--labels", "none.txt"), "none.txt does not exist"),
        (("-o", "r.html", "--heldout", "wine"), "6 features of model.isoproj"),
        (("-o", "r.html", "--max-pairs", 0), "1 or more; got '0'"),
        (("-o", "r.html", "--frontier", 1), "2 or more; got '1'"),
        (("-o", "no/r.html"), "no folder"),
    ],
)
def test_report_refuses_nonsense_in_one_line(folder, run, arguments, part):
    (folder / "short.txt").write_text("one\n")
    status, out, err = run("report", "model.isoproj", "points.npy", "-q", *arguments)
    assert status == 2
    assert out == ""
    assert part in err
    assert err.count("\n") == 1
    assert not (folder / "r.html").exists()


def test_a_report_on_other_data_is_a_claim_that_fails(folder, run, points):
    np.save("other.npy", points + 1.0)
    status, out, err = run("report", "model.isoproj", "other.npy", "-o", "r.html")
    assert status == 1
    assert out == ""
    assert "fingerprint of the data does not hold" in err
    assert not (folder / "r.html").exists()


def test_a_bare_certificate_has_a_report(folder, run, model):
    model.certificate_.save("bare.isoproj")
    assert run("report", "bare.isoproj", "points.npy", "-o", "r.html")[0] == 0
