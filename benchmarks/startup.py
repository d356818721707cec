"""How long `isoproj -h` takes beside `python -c "import numpy"`, in one run.

Run: python benchmarks/startup.py [ROUNDS]
The two are started in turn; medians and their ratio are printed (wanted: below 2).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

COMMANDS = {
    "import numpy": [sys.executable, "-c", "import numpy"],
    "isoproj -h": [sys.executable, "-m", "isoproj", "-h"],
    "isoproj fit -h": [sys.executable, "-m", "isoproj", "fit", "-h"],
}


def seconds(command: list[str]) -> float:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - start


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    times = {name: [] for name in COMMANDS}
    for _ in range(rounds + 1):
        for name, command in COMMANDS.items():
            times[name].append(seconds(command))
    # The first round fills the disk cache and is left out.
    medians = {name: statistics.median(t[1:]) for name, t in times.items()}
    for name, median in medians.items():
        ratio = median / medians["import numpy"]
        print(f"{name:16} {1000 * median:7.1f} ms  {ratio:5.2f} x")


if __name__ == "__main__":
    main()
