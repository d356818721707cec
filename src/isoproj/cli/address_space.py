"""Room for the numerical libraries where ``ulimit -v`` limits the address space.

OpenBLAS ends the process when it gets no memory, which no program can catch. So what
it needs is tried before the libraries are imported, and taken before a verb runs.
"""

from __future__ import annotations

import mmap
import threading

from isoproj.cli.errors import UsageError
from isoproj.numerics.threads import n_threads

# Megabytes that NumPy, SciPy and scikit-learn map, and that each core adds: a thread
# of two BLAS libraries each and one of ours, stacks and buffers. Measured on Linux.
_LIBRARIES = 420
_CORE = 210


def needed_megabytes() -> int:
    """Return the address space that the libraries and the working threads take."""
    return _LIBRARIES + _CORE * n_threads()


def check_address_space() -> bool:
    """Return whether the address space is limited; raise an error if it is too small.

    Raises
    ------
    UsageError
        If the libraries would not fit.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return False
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        return False
    megabytes = needed_megabytes()
    try:
        mmap.mmap(-1, megabytes * 2**20).close()
    except OSError:
        message = (
            f"the numerical libraries need {megabytes} MB of address space, and the "
            "limit leaves less. Raise it (ulimit -v)."
        )
        raise UsageError(message) from None
    return True


def reserve_buffers() -> None:
    """Let each thread that will work call BLAS once, so that its buffer is there."""
    import numpy as np
    from scipy.linalg.blas import dgemm

    matrix = np.ones((200, 200))
    together = threading.Barrier(n_threads())

    def multiply() -> None:
        # All at once: a thread that ends would hand its buffer to the next one.
        try:
            together.wait()
        except threading.BrokenBarrierError:
            return
        for _ in range(10):
            matrix @ matrix
            dgemm(1.0, matrix, matrix)

    threads = [threading.Thread(target=multiply) for _ in range(n_threads())]
    try:
        for thread in threads:
            thread.start()
    except RuntimeError as error:  # no room for the stack of a thread
        together.abort()
        raise MemoryError(str(error)) from None
    for thread in threads:
        thread.join()
