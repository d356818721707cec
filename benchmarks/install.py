"""What `pip install isoproj` weighs, and what an import of it costs.

Run: python benchmarks/install.py weight [--write]
Installs the project alone in an empty environment (a minute), adds up the files of each
package, and starts imports in turn; medians are told as ratios to numpy's.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from _results import keep

ROOT = Path(__file__).parents[1]
ROUNDS = 9
IMPORTS = {
    "`import numpy`": "import numpy",
    "`import sklearn.decomposition`": "import sklearn.decomposition",
    "`import isoproj`": "import isoproj",
    "`isoproj.NearIsometricProjection`": "from isoproj import NearIsometricProjection",
}
# Runs inside the empty environment: bytes of each package's own files.
WEIGH = """
import importlib.metadata as m, json
sizes = {}
for d in m.distributions():
    files = [d.locate_file(f) for f in d.files or []]
    found = [f for f in files if f.suffix != ".pyc" and f.is_file()]
    sizes[d.metadata["Name"]] = sum(f.stat().st_size for f in found)
print(json.dumps(sizes))
"""


def seconds(python: Path, code: str) -> float:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    start = time.perf_counter()
    subprocess.run([python, "-c", code], check=True, env=environment)
    return time.perf_counter() - start


def weight() -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / ("Scripts" if os.name == "nt" else "bin") / "python"
        pip = [python, "-m", "pip", "install", "-q", "--no-compile", ROOT]
        subprocess.run(pip, check=True)
        told = subprocess.run(
            [python, "-c", WEIGH], check=True, capture_output=True, text=True
        )
        sizes = json.loads(told.stdout)
        times: dict[str, list[float]] = {name: [] for name in IMPORTS}
        for _ in range(ROUNDS + 1):
            for name, code in IMPORTS.items():
                times[name].append(seconds(python, code))
    for tool in ("pip", "setuptools"):
        sizes.pop(tool, None)
    # The first round compiles and fills the disk cache; it is left out.
    medians = {name: statistics.median(t[1:]) for name, t in times.items()}
    lines = ["| package | MB |", "|---|---|"]
    for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
        lines.append(f"| {name} | {size / 1e6:.1f} |")
    lines.append(f"| together | {sum(sizes.values()) / 1e6:.0f} |")
    lines += ["", "| start of Python and | time beside numpy |", "|---|---|"]
    for name, median in medians.items():
        lines.append(f"| {name} | {median / medians['`import numpy`']:.1f} x |")
    return lines


def main() -> None:
    if sys.argv[1:2] != ["weight"]:
        sys.exit(__doc__)
    lines = weight()
    print("\n".join(lines))
    if "--write" in sys.argv:
        keep("install", "weight", lines)


if __name__ == "__main__":
    main()
