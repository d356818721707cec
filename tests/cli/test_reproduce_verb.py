from __future__ import annotations

import pytest

from isoproj.reproduction.datasets import load


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A folder from which no data of the paper can be found."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ISOPROJ_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "cache"))
    load.cache_clear()
    return tmp_path


def test_offline_digits_stand_in_missing_files_are_named_and_a_second_run_only_reports(
    bare, run, checked
):
    arguments = ("reproduce", "--only", "table1", "--offline", "-o", "out", "--json")
    arguments = (*arguments, "--jobs", 1)
    status, out, err = run(*arguments)
    assert status == 0, err
    payload = checked(out)
    assert [(e["name"], e["finished"]) for e in payload["experiments"]] == [
        ("table1", 2)
    ]
    told = " ".join(payload["warnings"])
    assert "mnist.npz" in told
    assert "20news_two_groups.json.gz" in told
    assert "digits stand in" in told
    assert "2 of 2 cells are finished" in (bare / "out.md").read_text()
    assert "8 x 8 digits" in (bare / "out.md").read_text()
    records = (bare / "out" / "records.jsonl").read_bytes()
    page = (bare / "out.md").read_bytes()
    for more in ((), ("--report",)):
        status, _, err = run(*arguments, *more)
        assert status == 0, err
        assert " of 2:" not in err
        assert (bare / "out" / "records.jsonl").read_bytes() == records
        assert (bare / "out.md").read_bytes() == page


def test_the_list_names_experiments_and_runs_nothing(bare, run, checked):
    status, out, _ = run("reproduce", "--list", "--full")
    assert status == 0
    for name in ("table1", "figure1", "figure2-news", "figure3", "figure4", "held-out"):
        assert name in out
    status, out, _ = run("reproduce", "--list", "--json")
    assert checked(out)["page"] is None
    assert not list(bare.iterdir())


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--only", "figure9"), "'figure9'"),
        (("--only", "figure1", "--report"), "records"),
        (("--only", "table1", "--jobs", 0), "--jobs"),
        (("--only", "dimension", "--offline"), "without its data"),
        (("--quick", "--full"), "not allowed"),
    ],
)
def test_reproduce_refuses_nonsense_in_one_line(bare, run, arguments, part):
    status, out, err = run("reproduce", "-q", *arguments)
    assert status == 2
    assert out == ""
    assert part in err
    assert err.count("\n") == 1
    assert not list(bare.glob("results*"))
