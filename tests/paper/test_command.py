from __future__ import annotations

import pytest

from paper.__main__ import main
from paper.datasets import load


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A folder from which no data of the paper can be found."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ISOPROJ_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "cache"))
    load.cache_clear()
    yield tmp_path
    load.cache_clear()


def test_digits_stand_in_missing_files_are_named_and_a_second_run_only_reports(
    bare, capsys
):
    arguments = ["--only", "table1", "--offline", "-o", "out", "--jobs", "1"]
    assert main(arguments) == 0
    told = capsys.readouterr().err
    assert "mnist.npz" in told
    assert "20news_two_groups.json.gz" in told
    assert "digits stand in" in told
    made = (bare / "out.md").read_text()
    assert "2 of 2 cells are finished" in made
    assert "8 x 8 digits" in made
    records = (bare / "out" / "records.jsonl").read_bytes()
    assert main(arguments) == 0
    assert " of 2:" not in capsys.readouterr().err
    assert (bare / "out" / "records.jsonl").read_bytes() == records
    assert (bare / "out.md").read_text() == made
    assert main([*arguments, "--report", "out/records.jsonl"]) == 0
    assert (bare / "out.md").read_text().splitlines()[8:] == made.splitlines()[8:]


def test_the_list_names_experiments_and_runs_nothing(bare, capsys):
    assert main(["--list", "--full"]) == 0
    out = capsys.readouterr().out
    for name in ("table1", "figure1", "figure2-news", "figure3", "figure4", "held-out"):
        assert name in out
    assert not list(bare.iterdir())


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--only", "figure9"], "'figure9'"),
        (["--only", "figure1", "--report", "none.jsonl"], "none.jsonl must hold"),
        (["--only", "table1", "--jobs", "0"], "--jobs"),
        (["--only", "dimension", "--offline"], "without its data"),
    ],
)
def test_nonsense_is_refused(bare, capsys, arguments, part):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert part in err.splitlines()[-1]
    assert not list(bare.glob("reproduced*"))
