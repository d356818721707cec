"""A thousand damaged files: a clean error or what the file says, nothing else."""

from __future__ import annotations

import faulthandler
import importlib.util
import signal
import sys
from contextlib import contextmanager

import numpy as np
import pytest
import scipy.sparse

from isoproj import Certificate
from isoproj.cli.program import main
from isoproj.files.write.writing import write_points
from isoproj.numerics.container import read_container, write_container

SEED = 20240607
PER_FORMAT = 68
NAMES = [
    "a.npy",
    "a.npy.gz",
    "a.npz",
    "sparse.npz",
    "a.csv",
    "a.tsv",
    "a.parquet",
    "a.feather",
    "a.h5",
    "a.fvecs",
    "a.bvecs",
    "a.ivecs",
    "a.safetensors",
]
NEEDS = {".parquet": "pyarrow", ".feather": "pyarrow", ".h5": "h5py"}
EXTREMES = [b"\x00" * 8, b"\xff" * 8, b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80", b"nan"]


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """Return a file with one to four of the accidents that files have."""
    out = bytearray(content)
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(0, max(1, len(out))))
        # Headers are where damage is most instructive.
        at = at % 128 if rng.random() < 0.5 else at
        kind = rng.integers(0, 6)
        if kind == 0 and out:
            at = min(at, len(out) - 1)
            out[at] ^= 1 << int(rng.integers(0, 8))
        elif kind == 1:
            del out[at:]
        elif kind == 2:
            out[at:at] = rng.bytes(int(rng.integers(1, 9)))
        elif kind == 3:
            del out[at : at + int(rng.integers(1, 9))]
        elif kind == 4:
            extreme = EXTREMES[int(rng.integers(0, len(EXTREMES)))]
            out[at : at + len(extreme)] = extreme
        else:
            other = int(rng.integers(0, max(1, len(out))))
            out[at : at + 8], out[other : other + 8] = (
                out[other : other + 8],
                out[at : at + 8],
            )
    return bytes(out)


@contextmanager
def within(seconds: int):
    def give_up(*_):
        msg = f"still reading after {seconds} s"
        raise AssertionError(msg)

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    # A loop inside a library does not hear the alarm; this ends even that.
    faulthandler.dump_traceback_later(200, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome(capsys, *arguments):
    """Run a verb; whatever happens it must be an answer or one line."""
    with within(20):
        status = main(list(arguments))
    out, err = capsys.readouterr()
    assert status in (0, 1, 2), (status, err)
    assert "Traceback" not in err
    assert "fault of isoproj" not in err, err
    if status == 2:
        assert out == ""
        assert err.count("\n") == 1, err
    return status, out


def original(name, folder):
    rng = np.random.default_rng(1)
    whole = rng.integers(0, 200, size=(12, 3))
    points = whole if name.endswith(("bvecs", "ivecs")) else rng.normal(size=(12, 3))
    path = folder / name
    if name.startswith("sparse"):
        points = scipy.sparse.random_array((12, 3), density=0.5, rng=rng, format="csr")
        scipy.sparse.save_npz(path, points)
    else:
        write_points(path, points)
    return path.read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_damaged_data_is_an_error_or_what_the_file_says(name, tmp_path, capsys):
    for suffix, library in NEEDS.items():
        if name.endswith(suffix) and importlib.util.find_spec(library) is None:
            pytest.skip(f"needs {library}")
    content = original(name, tmp_path)
    rng = np.random.default_rng([SEED, NAMES.index(name)])
    damaged = tmp_path / f"damaged_{name}"
    matrix = tmp_path / "map.npy"
    np.save(matrix, np.eye(3)[:2])
    refused = 0
    for _ in range(PER_FORMAT):
        damaged.write_bytes(mutated(content, rng))
        status, _ = outcome(capsys, "audit", "-q", str(matrix), str(damaged))
        refused += status == 2
    assert refused > 0


@pytest.fixture
def model_file(model, tmp_path):
    path = tmp_path / "model.isoproj"
    model.save(path)
    return path


def test_a_damaged_model_is_never_verified(model, model_file, points, tmp_path, capsys):
    data = tmp_path / "points.npy"
    np.save(data, points)
    content = model_file.read_bytes()
    rng = np.random.default_rng([SEED, 99])
    damaged = tmp_path / "damaged.isoproj"
    for _ in range(70):
        changed = mutated(content, rng)
        damaged.write_bytes(changed)
        status, _ = outcome(capsys, "verify", "-q", str(damaged), str(data))
        if changed != content and status == 0:
            # Only where safetensors itself says the same: nothing was changed.
            header, tensors = read_container(damaged)
            before = read_container(model_file)
            assert header == before[0]
            assert all(np.array_equal(tensors[n], before[1][n]) for n in before[1])


def forged(header, tensors, rng):
    """Return a header and tensors with one claim or number changed on purpose."""
    header = {**header, "certificate": dict(header["certificate"])}
    tensors = {name: tensor.copy() for name, tensor in tensors.items()}
    claims = header["certificate"]
    kind = rng.integers(0, 9)
    if kind == 0:
        claims["distortion"] *= float(rng.uniform(0.1, 0.999))
    elif kind == 1:
        claims["lower_bound"] = float(rng.uniform(claims["lower_bound"], 1.0)) + 1e-6
    elif kind == 2:
        claims["n_pairs"] += int(rng.integers(1, 5))
    elif kind == 3:
        tensors["components"] *= float(rng.choice([0.5, 1.001, 2.0, np.nan, np.inf]))
    elif kind == 4:
        row = int(rng.integers(0, tensors["weights"].size))
        tensors["weights"][row] = rng.choice([-1.0, np.nan, 0.5, np.inf, 2.0])
    elif kind == 5:
        row = int(rng.integers(0, tensors["weights"].size))
        tensors["weighted_pairs"][row] = rng.choice([-1, 0, 10**6, 2**62])
    elif kind == 6:
        claims["fingerprint"] = claims["fingerprint"][::-1]
    elif kind == 7:
        tensors["worst_pairs"] = np.roll(tensors["worst_pairs"], 1, axis=0)
    else:
        tensors["worst_distortions"] -= float(rng.uniform(1e-6, 0.5))
    return header, tensors


def test_a_forged_claim_with_a_right_digest_is_never_verified(
    model_file, points, tmp_path, capsys
):
    data = tmp_path / "points.npy"
    np.save(data, points)
    header, tensors = read_container(model_file)
    rng = np.random.default_rng([SEED, 100])
    path = tmp_path / "forged.isoproj"
    statuses = []
    for _ in range(50):
        write_container(path, *forged(header, tensors, rng))
        statuses.append(outcome(capsys, "verify", "-q", str(path), str(data))[0])
    assert 0 not in statuses
    assert 1 in statuses


def test_an_honest_model_is_verified(model_file, points, tmp_path, capsys):
    data = tmp_path / "points.npy"
    np.save(data, points)
    assert outcome(capsys, "verify", "-q", str(model_file), str(data))[0] == 0
    assert Certificate.load(model_file).n_points == points.shape[0]
