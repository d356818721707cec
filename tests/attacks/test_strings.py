"""No string of a model file reaches SQL, a terminal or a later fit unchecked."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from attacks.forging import HARMFUL, forge, replaced, strings_of, write_forged
from isoproj import Certificate, GuaranteedPCA, NearIsometricProjection
from isoproj.cli.arguments import EXPORTS
from isoproj.exceptions import FormatError
from isoproj.files.export.sql import to_pgvector, to_postgres
from isoproj.numerics.container import read_container

# Names of features may be any text; they are escaped where they are shown.
FREE = ("fitted", "feature_names")


@pytest.mark.parametrize("name", ["near", "pca"])
@pytest.mark.parametrize("text", HARMFUL)
def test_no_forged_string_of_a_model_is_loaded(models, tmp_path, run, name, text):
    header, _ = read_container(models / f"{name}.isoproj")
    paths = [p for p in strings_of(header) if p[:2] != FREE and p != ("digest",)]
    assert ("certificate", "fingerprint") in paths
    assert ("versions", "numpy") in paths
    for path in paths:
        forged = forge(
            models / f"{name}.isoproj",
            tmp_path / "forged.isoproj",
            lambda header, _, path=path: replaced(header, path, text),
        )
        status, out, err = run("info", forged)
        assert (status, out) == (2, ""), path
        assert err.count("\n") == 1
        assert "fault of isoproj" not in err


def test_a_forged_fingerprint_puts_no_command_into_sql(models, tmp_path, run):
    forged = forge(
        models / "near.isoproj",
        tmp_path / "forged.isoproj",
        lambda header, _: replaced(header, ("certificate", "fingerprint"), HARMFUL[0]),
    )
    for target in EXPORTS:
        output = tmp_path / "out"
        status, _, err = run("export", forged, "--to", target, "-o", output)
        assert status == 2
        assert "64 hexadecimal digits" in err
        assert not output.exists()


@pytest.mark.parametrize("text", HARMFUL)
def test_sql_of_a_certificate_made_in_memory_holds_no_foreign_text(models, text):
    certificate = Certificate.load(models / "near.isoproj")
    forged = dataclasses.replace(certificate, fingerprint=text)
    honest = dataclasses.replace(certificate, fingerprint="")
    for export in (to_pgvector, to_postgres):
        lines = export(forged).splitlines()
        assert len(lines) == len(export(honest).splitlines())
        assert not any(line.lstrip().startswith("\\") for line in lines)
        assert "DROP" not in export(forged)


def test_a_loaded_model_never_says_where_a_later_fit_writes(models, tmp_path):
    there = tmp_path / "elsewhere"
    forged = forge(
        models / "near.isoproj",
        tmp_path / "forged.isoproj",
        lambda header, _: replaced(header, ("parameters", "checkpoint"), str(there)),
    )
    model = NearIsometricProjection.load(forged)
    model.set_params(solver="minimax", max_iter=None)
    model.fit(np.load(models / "points.npy")[:9])
    assert not there.exists()


def test_a_model_that_names_another_class_of_isoproj_is_refused(models, tmp_path, run):
    for name in ("Certificate", "Report", "audit", "__doc__"):
        forged = forge(
            models / "near.isoproj",
            tmp_path / "forged.isoproj",
            lambda header, _, name=name: replaced(header, ("estimator",), name),
        )
        status, out, err = run("info", forged)
        assert (status, out) == (2, "")
        assert "must hold an estimator that this isoproj has" in err


def test_a_key_that_comes_twice_is_refused(models, tmp_path):
    header, tensors = read_container(models / "near.isoproj")

    def twice(whole):
        text = json.dumps(whole, sort_keys=True)
        return text.replace('"distortion":', '"distortion": 0.0, "distortion":', 1)

    forged = write_forged(tmp_path / "a.isoproj", header, tensors, twice)
    with pytest.raises(FormatError, match="header is missing or damaged"):
        Certificate.load(forged)


def test_nested_json_is_one_clear_line(models, tmp_path, run):
    header, tensors = read_container(models / "near.isoproj")
    deep = "[" * 100_000 + "]" * 100_000
    forged = write_forged(tmp_path / "a.isoproj", header, tensors, lambda _: deep)
    status, _, err = run("info", forged)
    assert status == 2
    assert "fault of isoproj" not in err


FAULTS = {
    "n_iter": lambda h, t: replaced(h, ("fitted", "n_iter"), float("inf")),
    "history": lambda h, t: t["history"].fill(np.inf),
    "names": lambda h, t: replaced(h, ("fitted", "feature_names"), "abcdef"),
    "few names": lambda h, t: replaced(h, ("fitted", "feature_names"), ["a"]),
    "no names": lambda h, t: replaced(h, ("fitted", "feature_names"), [1] * 6),
    "status": lambda h, t: replaced(h, ("fitted", "status"), "x"),
    "fitted": lambda h, t: replaced(h, ("fitted",), 3),
    "parameters": lambda h, t: replaced(h, ("parameters",), [1]),
    "parameter": lambda h, t: replaced(h, ("parameters", "n_components"), {"a": 1}),
    "versions": lambda h, t: replaced(h, ("versions",), [1]),
    "estimator": lambda h, t: replaced(h, ("estimator",), ["x"]),
    "certificate": lambda h, t: replaced(h, ("certificate",), [1]),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["near", "pca"])
def test_a_damaged_entry_is_one_clear_line(models, tmp_path, run, name, fault):
    forged = forge(
        models / f"{name}.isoproj", tmp_path / "forged.isoproj", FAULTS[fault]
    )
    for verb in (["info"], ["export", "--to", "npy", "-o", tmp_path / "a.npy"]):
        status, _, err = run(verb[0], forged, *verb[1:])
        assert status == 2
        assert err.count("\n") == 1
        assert "fault of isoproj" not in err
    kind = NearIsometricProjection if name == "near" else GuaranteedPCA
    with pytest.raises(FormatError):
        kind.load(forged)
