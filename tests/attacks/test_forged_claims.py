"""Forged claims and strings over every verb and export: refused, or shown harmless."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from attacks.exact import SEED
from attacks.forging import HARMFUL, forge, replaced, strings_of
from isoproj import Certificate
from isoproj.cli.arguments import EXPORTS
from isoproj.numerics.container import read_container

NUMBERS = (0, -1, 0.5, 1e-300, 1e300, float("nan"), float("inf"), 2**70, None, True)
# Statements of how a fit went, and a cap, which holds wherever what is kept and its
# bound are recomputed for it; no number that `transform` or another bound uses. Labels,
# lists and a least distance say which pairs the claims are about: what verifies is true
# of those.
STORIES = {
    ("fitted", "n_iter"),
    ("history",),
    ("labels",),
    ("listed_pairs",),
    ("certificate", "min_distance"),
    ("fitted", "status"),
    ("certificate", "guarantee", "cap"),
}
NAMES = ("near", "pca", "labels", "listed", "sampled")
# Claims are recomputed to this precision.
PRECISION = 1e-9
# Parameters say what a later fit would do; `verify` is about this one.
PARAMETERS = "parameters"


def values_of(value, path=()):
    """Yield the path of every value of a JSON object that is no container."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from values_of(item, (*path, name))
    elif isinstance(value, list):
        for at, item in enumerate(value[:3]):
            yield from values_of(item, (*path, at))
    else:
        yield path


def is_harmless(place, forged):
    """Return whether another value at a place leaves every claim of a file true."""
    if place in STORIES or place[0] == PARAMETERS:
        return True
    certificate = Certificate.load(forged)
    # The bound rests on the hull, or the claim is not made.
    is_unused = place == ("weighted_pairs",) and certificate.proof == "hull"
    is_ratio = place == ("certificate", "spectral_ratio")
    return is_unused or (is_ratio and certificate.spectral_ratio is None)


def verbs(forged, folder):
    """Return a command line for every verb and export that reads a model."""
    data, out = folder / "points.npy", folder / "out"
    lines = [
        ("info", forged),
        ("info", forged, "--json"),
        ("verify", forged, data),
        ("verify", forged, data, "--json"),
        ("audit", forged, data),
        ("transform", forged, data, "-o", folder / "out.csv", "--force"),
        ("report", forged, data, "-o", folder / "out.html", "--force"),
        ("report", forged, data, "-o", folder / "out.md", "--force"),
        ("compare", data, "--maps", forged, "-k", "2", "--methods", "pca"),
    ]
    lines += [
        ("export", forged, "--to", to, "-o", f"{out}{EXPORTS[to] or to}", "--force")
        for to in EXPORTS
    ]
    return lines


def check_line(status, out, err, what):
    """Assert that a verb ended with an answer or one clear line, and no escapes."""
    assert status in (0, 1, 2), what
    assert "fault of isoproj" not in err, (what, err)
    assert "Traceback" not in err, what
    assert not set("\x1b\x9b\x07\x00\u202e") & set(out + err), what
    if status == 2:
        assert 1 <= err.count("\n") <= 3, (what, err)


def changed_number(rng, header, tensors):
    """Change one number of a model file; return its place and by how much."""
    if rng.random() < 0.5:
        name = str(rng.choice(sorted(tensors)))
        tensor = tensors[name]
        if not tensor.size:
            return None
        at = tuple(int(rng.integers(n)) for n in tensor.shape)
        before = tensor[at]
        if tensor.dtype.kind == "f":
            factor = rng.choice([-1.0, 0.0, 1.01, 1.5, np.inf, np.nan])
            with np.errstate(invalid="ignore"):
                tensor[at] = before * factor + (0.1 if rng.random() < 0.5 else 0.0)
        else:
            tensor[at] = before + rng.choice([-1, 1, 10**6, -(10**6)])
        return None if tensor[at] == before else ((name,), abs(tensor[at] - before))
    paths = [p for p in values_of(header) if p[0] not in ("digest", "versions")]
    path = paths[int(rng.integers(len(paths)))]
    value = header
    for step in path:
        value = value[step]
    drawn = NUMBERS[int(rng.integers(len(NUMBERS)))]
    if isinstance(value, float) and rng.random() < 0.5:
        drawn = value * (1.0 + float(rng.choice([1e-6, -1e-6, 0.1])))
    if drawn == value and isinstance(drawn, bool) == isinstance(value, bool):
        return None
    replaced(header, path, drawn)
    numbers = isinstance(value, float) and isinstance(drawn, float)
    return path, abs(drawn - value) if numbers else np.inf


def forge_numbers(models, folder, run, first, count, figures):
    """Change single numbers: no verb breaks, and what matters does not verify."""
    ended, passed, faults = Counter(), Counter(), []
    for at in range(first, first + count):
        rng = np.random.default_rng([SEED, 3, at])
        name, told = NAMES[at % len(NAMES)], []
        forged = forge(
            models / f"{name}.isoproj",
            folder / "forged.isoproj",
            lambda h, t, rng=rng, told=told: told.append(changed_number(rng, h, t)),
        )
        if told[0] is None:
            continue
        place, change = told[0]
        lines = verbs(forged, folder)
        for line in (lines[2], lines[int(rng.integers(len(lines)))]):
            status, out, err = run(*line)
            what = f"seed {SEED}, {at}: {name} {place} by {change} {line[0]}"
            check_line(status, out, err, what)
            ended[status] += 1
            if line[0] == "verify" and status == 0:
                passed[place] += 1
                if not change <= PRECISION and not is_harmless(place, forged):
                    faults.append(what)
    figures(
        f"seed {SEED}, {sum(ended.values())} runs: {ended[2]} refused, {ended[1]} not "
        f"verified, {ended[0]} answered; verified with another "
        + (", ".join(sorted(".".join(map(str, p)) for p in passed)) or "nothing")
    )
    assert not faults, "\n".join(faults)


def forge_strings(models, folder, run, texts, figures):
    """Put harmful texts in place of every string, through every verb and export."""
    ended = Counter()
    for name in NAMES:
        header, _ = read_container(models / f"{name}.isoproj")
        paths = [p for p in strings_of(header) if p != ("digest",)]
        for path in paths:
            for text in texts:
                forged = forge(
                    models / f"{name}.isoproj",
                    folder / "forged.isoproj",
                    lambda h, _, p=path, t=text: replaced(h, p, t),
                )
                lines = verbs(forged, folder)
                free = path[:2] == ("fitted", "feature_names")
                for line in lines if free and path[2] == 0 else lines[:1]:
                    status, out, err = run(*line)
                    check_line(status, out, err, f"{name} {path} {text!r} {line[:2]}")
                    ended[status] += 1
                    assert free or status == 2, (name, path, text)
                    check_written(folder, text)
    figures(f"{sum(ended.values())} runs: {ended[2]} refused, {ended[0]} answered")


def check_written(folder, text):
    """Assert that no file of an export or report holds the text as it is."""
    for path in folder.glob("out*"):
        if path.is_file() and path.suffix in (".sql", ".html"):
            content = path.read_text(encoding="utf-8")
            assert "<script>alert(1)" not in content
            assert "DROP TABLE" not in content or path.suffix == ".html"
            assert not any(x.startswith("\\!") for x in content.splitlines())
            path.unlink()


@pytest.fixture
def folder(tmp_path, models):
    (tmp_path / "points.npy").write_bytes((models / "points.npy").read_bytes())
    return tmp_path


def test_a_few_forged_numbers_are_refused_or_harmless(models, folder, run, figures):
    forge_numbers(models, folder, run, 0, 10, figures)


@pytest.mark.attack
@pytest.mark.parametrize("part", range(10))
def test_forged_numbers_are_refused_or_harmless(models, folder, run, figures, part):
    forge_numbers(models, folder, run, 1000 + 60 * part, 60, figures)


@pytest.mark.attack
@pytest.mark.parametrize("text", range(len(HARMFUL)))
def test_forged_strings_are_refused_or_harmless(models, folder, run, figures, text):
    forge_strings(models, folder, run, [HARMFUL[text]], figures)
