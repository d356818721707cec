"""A data file returns its own numbers and no other file's."""

from __future__ import annotations

import numpy as np
import pytest

h5py = pytest.importorskip("h5py")


@pytest.mark.parametrize("kind", ["external storage", "virtual", "external link"])
def test_hdf5_that_points_at_another_file_is_refused(tmp_path, run, kind):
    secret = np.arange(12.0).reshape(4, 3) + 0.5
    (tmp_path / "secret.bin").write_bytes(secret.tobytes())
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["secret"] = secret
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        if kind == "external storage":
            where = [(str(tmp_path / "secret.bin"), 0, secret.nbytes)]
            file.create_dataset("a", (4, 3), "f8", external=where)
        elif kind == "virtual":
            layout = h5py.VirtualLayout((4, 3), "f8")
            layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "secret", (4, 3))
            file.create_virtual_dataset("a", layout)
        else:
            file["a"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "secret")
    output = tmp_path / "out.isoproj"
    status, out, err = run("fit", f"{path}:a", "-k", 1, "-o", output)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert not output.exists()
