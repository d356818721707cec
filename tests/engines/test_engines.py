from __future__ import annotations

import gc
import os
import signal
import tempfile

import numpy as np
import pytest
from geometry import cloud, random_basis
from numpy.testing import assert_array_equal
from sklearn.base import clone

from isoproj import DaskEngine, NearIsometricProjection, audit
from isoproj.engines.base import ThreadEngine
from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import prepare_pairs
from isoproj.pairs.worst_pairs import find_worst

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

ROWS = cloud(0, 2500, 40) * 0.85 ** np.arange(40)
COMPONENTS = random_basis(1, 40, 4).T


# A machine with much else to do starts workers slowly.
PATIENCE = dict.fromkeys(
    ("distributed.comm.timeouts.connect", "distributed.comm.timeouts.tcp"), "300s"
)


@pytest.fixture(scope="module")
def client():
    with dask.config.set(PATIENCE):
        cluster = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        )
        with cluster, distributed.Client(cluster, timeout="300s") as client:
            yield client


class Murder:
    """Stands for a client that loses a worker, or all, while batches run."""

    def __init__(self, client, victims):
        self.client = client
        self.victims = victims
        self.count = 0

    def __getattr__(self, name):
        return getattr(self.client, name)

    def submit(self, *args, **options):
        future = self.client.submit(*args, **options)
        self.count += 1
        if self.count == 3:
            for pid in list(self.client.run(os.getpid).values())[: self.victims]:
                os.kill(pid, signal.SIGKILL)
        return future


def assert_same_audit(first, second):
    assert_array_equal(first.worst_pairs, second.worst_pairs)
    assert_array_equal(first.worst_distortions, second.worst_distortions)
    assert_array_equal(first.histogram[0], second.histogram[0])
    assert first.mean == second.mean


def test_a_cluster_audits_to_the_last_bit_as_threads_do(client):
    on_cluster = audit(ROWS, COMPONENTS, engine=DaskEngine(client))
    assert_same_audit(on_cluster, audit(ROWS, COMPONENTS))


def test_a_cluster_finds_the_same_worst_pairs_with_the_same_effort(client):
    points, pairs = prepare_pairs(ROWS, rotate=False)
    here = find_worst(points, pairs, COMPONENTS)
    there = find_worst(points, pairs, COMPONENTS, engine=DaskEngine(client))
    assert here.effort.by_product > 0
    assert here.effort == there.effort
    assert_array_equal(here.worst_pairs, there.worst_pairs)
    assert_array_equal(here.worst_losses, there.worst_losses)


def test_a_cluster_searches_to_the_last_bit_as_threads_do(client):
    points, pairs = prepare_pairs(ROWS, rotate=True)
    answers = []
    for engine in (ThreadEngine(), DaskEngine(client)):
        search = PairSearch(points, pairs, memory_limit=0, engine=engine)
        answers.append(search.weakest(random_basis(2, 40, 3), 0.01))
    assert_array_equal(answers[0].codes, answers[1].codes)
    assert_array_equal(answers[0].retained, answers[1].retained)


def test_a_fit_does_not_depend_on_the_engine(client):
    model = NearIsometricProjection(
        3, random_state=0, tol=0.1, n_restarts=0, memory_limit=0
    )
    rows = ROWS[:120]
    here = clone(model).fit(rows)
    there = clone(model.set_params(engine=DaskEngine(client))).fit(rows)
    assert_array_equal(here.components_, there.components_)
    assert here.distortion_ == there.distortion_
    assert here.lower_bound_ == there.lower_bound_


@pytest.mark.parametrize("victims", [1, 2])
def test_killed_workers_cost_their_blocks_only(client, victims):
    murdered = Murder(client, victims)
    rows = cloud(2, 6000, 40)
    on_cluster = audit(rows, COMPONENTS, engine=DaskEngine(murdered))
    assert murdered.count > 3
    assert_same_audit(on_cluster, audit(rows, COMPONENTS))


def test_progress_on_a_cluster_ends_at_all_pairs(client):
    seen = []
    audit(
        ROWS,
        COMPONENTS,
        engine=DaskEngine(client),
        progress=lambda done, n: seen.append((done, n)),
    )
    n_pairs = 2500 * 2499 // 2
    assert seen == sorted(seen)
    assert seen[-1] == (n_pairs, n_pairs)


def test_an_engine_can_be_made_from_an_address(client):
    engine = DaskEngine(client.scheduler.address)
    assert client.scheduler.address in repr(engine)
    engine.client.close()


@pytest.fixture
def mapped(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    return np.load(tmp_path / "rows.npy", mmap_mode="r")


def test_points_in_a_file_are_read_from_there(client, mapped):
    engine = DaskEngine(client)
    on_cluster = audit(mapped, COMPONENTS, engine=engine, memory_limit=0)
    assert engine.sharing == "path"
    assert_same_audit(on_cluster, audit(ROWS, COMPONENTS))
    audit(ROWS, COMPONENTS, engine=engine)
    assert engine.sharing == "copies"


def test_a_fit_by_path_is_that_of_threads(client, mapped):
    models = [
        NearIsometricProjection(
            3, random_state=0, tol=0.1, n_restarts=0, memory_limit=0, engine=engine
        ).fit(rows[:120])
        for rows, engine in ((ROWS, None), (mapped, DaskEngine(client)))
    ]
    assert models[1].engine.sharing == "path"
    assert_array_equal(models[0].components_, models[1].components_)
    assert models[0].lower_bound_ == models[1].lower_bound_


def test_a_worker_killed_while_it_reads_files_costs_its_blocks_only(client, tmp_path):
    rows = cloud(2, 6000, 40)
    np.save(tmp_path / "rows.npy", rows)
    murdered = Murder(client, 1)
    engine = DaskEngine(murdered)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    on_cluster = audit(mapped, COMPONENTS, engine=engine, memory_limit=0)
    assert murdered.count > 3
    assert engine.sharing == "path"
    assert_same_audit(on_cluster, audit(rows, COMPONENTS))


def test_another_file_of_the_same_name_is_noticed(client, mapped, tmp_path):
    other = tmp_path / "other.npy"
    np.save(other, ROWS[::-1])
    other.replace(tmp_path / "rows.npy")
    engine = DaskEngine(client)
    on_cluster = audit(mapped, COMPONENTS, engine=engine)
    assert engine.sharing == "copies"
    assert_same_audit(on_cluster, audit(ROWS, COMPONENTS))


def test_files_that_a_later_worker_cannot_read_are_sent_to_it(
    client, mapped, tmp_path, monkeypatch
):
    class Vanishing:
        """Stands for a client whose workers lose sight of the files."""

        def __getattr__(self, name):
            return getattr(client, name)

        def submit(self, *args, **options):
            (tmp_path / "rows.npy").unlink(missing_ok=True)
            return client.submit(*args, **options)

    engine = DaskEngine(Vanishing())
    on_cluster = audit(mapped, COMPONENTS, engine=engine)
    assert engine.sharing == "copies"
    assert_same_audit(on_cluster, audit(ROWS, COMPONENTS))


def test_shared_scratch_files_are_gone_with_their_points(
    client, mapped, tmp_path, monkeypatch
):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    engine = DaskEngine(client)
    audit(mapped, COMPONENTS, engine=engine, memory_limit=0)
    assert len(list(scratch.iterdir())) == 1
    del engine
    gc.collect()
    assert list(scratch.iterdir()) == []
