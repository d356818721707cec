from __future__ import annotations

import json
import os
import pickle

import numpy as np
import pytest
import safetensors.numpy
from certificates import assert_same_bits, data, fitted
from numpy.testing import assert_array_equal

from isoproj import Certificate, verify
from isoproj.exceptions import ClaimError, FormatError
from isoproj.files.export.dense import write_folder
from isoproj.numerics.container import (
    open_atomically,
    read_container,
    versions,
    write_container,
)


def test_a_flipped_byte_is_noticed_or_changes_nothing(tmp_path):
    path = tmp_path / "a.isoproj"
    honest = fitted("listed").certificate_
    honest.save(path)
    content = path.read_bytes()
    for at in range(len(content)):
        for mask in (0x01, 0x20) if at % 3 else (0xFF,):
            changed = bytearray(content)
            changed[at] ^= mask
            path.write_bytes(changed)
            try:
                back = Certificate.load(path)
                verify(back, data())
            except (FormatError, ClaimError):
                continue
            assert_same_bits(back, honest)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_file_is_refused(tmp_path, share):
    path = tmp_path / "a.isoproj"
    fitted().certificate_.save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(FormatError, match=r"a\.isoproj"):
        Certificate.load(path)


@pytest.mark.parametrize("failing", ["replace", "fsync"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    failing, tmp_path, monkeypatch
):
    path = tmp_path / "a.isoproj"
    path.write_bytes(b"old")

    def fail(*args, **kwargs):
        msg = "disk full"
        raise OSError(msg)

    certificate = fitted().certificate_
    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="disk full"):
        certificate.save(path)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.isoproj"]


def test_pickle_files_are_refused_without_being_opened_as_such(tmp_path):
    path = tmp_path / "a.isoproj"

    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "exploded"),)

    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(FormatError, match="safetensors"):
        Certificate.load(path)
    assert not (tmp_path / "exploded").exists()


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        Certificate.load(tmp_path / "none.isoproj")


def test_another_format_version_is_named(tmp_path):
    path = tmp_path / "a.isoproj"
    fitted().certificate_.save(path)
    header, tensors = read_container(path)
    text = json.dumps({**header, "format_version": 2})
    path.write_bytes(safetensors.numpy.save(tensors, metadata={"isoproj": text}))
    with pytest.raises(FormatError, match="version 1; it has 2"):
        Certificate.load(tmp_path / "a.isoproj")


@pytest.mark.parametrize(
    "header",
    [{}, {"certificate": 5}, {"certificate": None}, {"certificate": {}}],
)
def test_a_file_without_a_certificate_is_a_format_error(header, tmp_path):
    write_container(tmp_path / "a.isoproj", header, {})
    with pytest.raises(FormatError):
        Certificate.load(tmp_path / "a.isoproj")


@pytest.mark.parametrize("value", [[], {}, "some", None, 3])
@pytest.mark.parametrize("name", ["pair_kind", "distortion"])
def test_an_entry_of_another_type_is_a_format_error(name, value, tmp_path):
    scalars, tensors = fitted().certificate_.parts()
    header = {"certificate": {**scalars, name: value}}
    write_container(tmp_path / "a.isoproj", header, tensors)
    with pytest.raises(FormatError):
        Certificate.load(tmp_path / "a.isoproj")


def test_containers_keep_header_and_arrays(tmp_path):
    arrays = {"a": np.arange(6).reshape(2, 3), "b": np.ones(2, np.float32)}
    write_container(tmp_path / "a", {"word": "é", "n": 1}, arrays)
    header, tensors = read_container(tmp_path / "a")
    assert (header["word"], header["n"]) == ("é", 1)
    for name, array in arrays.items():
        assert_array_equal(tensors[name], array)
        assert tensors[name].dtype == array.dtype


def test_a_file_appears_under_its_name_only_when_it_is_complete(tmp_path):
    path = tmp_path / "a"
    with open_atomically(path) as file:
        file.write(b"whole")
        assert not path.exists()
    assert path.read_bytes() == b"whole"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_versions_name_the_numerical_libraries():
    assert set(versions()) == {"isoproj", "python", "numpy", "scipy", "scikit-learn"}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize("through", ["itself", "link"])
def test_a_pipe_is_never_replaced_by_a_file(tmp_path, through):
    os.mkfifo(tmp_path / "pipe")
    path = tmp_path / "pipe"
    if through == "link":
        path = tmp_path / "link"
        path.symlink_to("pipe")
    before = sorted(p.name for p in tmp_path.iterdir())
    with pytest.raises(OSError, match="must be an ordinary file"):
        fitted().certificate_.save(path)
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(p.name for p in tmp_path.iterdir()) == before


@pytest.mark.parametrize("exists", [True, False])
def test_a_symbolic_link_is_written_through(tmp_path, exists):
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "model.isoproj", tmp_path / "link.isoproj"
    link.symlink_to(target)
    if exists:
        target.write_bytes(b"old")
    fitted().certificate_.save(link)
    assert link.is_symlink()
    assert Certificate.load(target).n_points == 12
    link.unlink()
    link.symlink_to(link)
    with pytest.raises(OSError, match="ordinary file"):
        fitted().certificate_.save(link)


def test_the_umask_of_the_process_is_never_touched(tmp_path, monkeypatch):
    mask = os.umask(0o027)

    def touched(mask):
        raise AssertionError(mask)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "umask", touched)
            fitted().certificate_.save(tmp_path / "new")
            write_folder(tmp_path / "folder", {"file": b""})
            (tmp_path / "own").write_bytes(b"old")
            (tmp_path / "own").chmod(0o600)
            fitted().certificate_.save(tmp_path / "own")
    finally:
        os.umask(mask)
    modes = {p.name: p.stat().st_mode & 0o777 for p in tmp_path.iterdir()}
    assert modes == {"new": 0o640, "folder": 0o750, "own": 0o600}
