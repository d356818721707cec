"""A cluster that is gone is told in one clear line, at once."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from isoproj import DaskEngine, NearIsometricProjection, audit

distributed = pytest.importorskip("distributed")
dask = pytest.importorskip("dask")

ROWS = np.random.default_rng(0).normal(size=(60, 5))


def test_a_closed_client_is_one_clear_line():
    with dask.config.set({"distributed.scheduler.active-memory-manager.start": False}):
        cluster = distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        )
        with cluster:
            client = distributed.Client(cluster)
            engine = DaskEngine(client)
            assert audit(ROWS, np.eye(2, 5), engine=engine).distortion > 0.0
            client.close()
            for use in (
                lambda: audit(ROWS, np.eye(2, 5), engine=engine),
                lambda: NearIsometricProjection(2, engine=engine).fit(ROWS),
            ):
                with pytest.raises(RuntimeError, match="Make a new Client"):
                    use()


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


@pytest.fixture
def processes():
    """Processes of a test, ended with it."""
    started = []
    yield started
    for process in started:
        with contextlib.suppress(OSError):
            process.kill()
        process.wait()


@pytest.mark.attack
@pytest.mark.parametrize("when", ["before", "during"])
def test_a_killed_scheduler_is_one_clear_line(processes, when, figures):
    address = f"tcp://127.0.0.1:{free_port()}"
    options = ["--host", address, "--no-dashboard"]
    for kind, given in (("scheduler", options), ("worker", [address, "--no-nanny"])):
        command = [sys.executable, "-m", "dask", kind, *given]
        processes.append(
            subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        )
    client = distributed.Client(address, timeout="120s")
    try:
        client.wait_for_workers(1, timeout=120)
        engine, kill = DaskEngine(client), processes[0].pid
        if when == "before":
            os.kill(kill, signal.SIGKILL)
            while client.status == "running":
                time.sleep(0.01)
        else:
            submit = client.submit

            def submitting(*args, **kwargs):
                future = submit(*args, **kwargs)
                with contextlib.suppress(OSError):
                    os.kill(kill, signal.SIGKILL)
                return future

            client.submit = submitting
        start = time.monotonic()
        with pytest.raises(RuntimeError, match="Make a new Client"):
            audit(ROWS, np.eye(2, 5), engine=engine)
        figures(f"scheduler killed {when}: told in {time.monotonic() - start:.1f} s")
    finally:
        client.close(timeout=1)
