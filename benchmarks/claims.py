"""Make the figures of README again, and the ledger of them, docs/claims.md.

Run: python benchmarks/claims.py

README's examples run as they are printed, one after the other, and their output is put
below them. The table and the figures in sentences come from tables that are committed;
a figure that its table no longer holds is named, to be corrected by hand.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import re
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
README, LEDGER = ROOT / "README.md", ROOT / "docs" / "claims.md"
EXAMPLE = re.compile(r"```python\n(.*?)```\n(\n```text\n(.*?)```\n)?", re.DOTALL)
# The head of README's table, and which rows of the committed table it shows.
GRID = "benchmarks/results/minimax_grid.md"
HEAD = (
    "| k | paper's algorithm | `isoproj` | lower bound | gap |\n|---|---|---|---|---|\n"
)
SHOWN = ("5", "448")
_WIDTH = 92


@dataclass(frozen=True)
class Figure:
    """A figure in a sentence of README, and the committed table that it is from."""

    said: str
    data: str
    source: str


FIGURES = (
    Figure("1.14%", "MNIST, 60,000 x 784, k = 40", "scale_mnist.md"),
    Figure("3.5 times", "the same", "scale_mnist.md"),
    Figure("51 s", "the same, 2 shared cores", "scale_mnist.md"),
    Figure("1.5 GB", "the same", "scale_mnist.md"),
    Figure("3.5%", "digits, MNIST and text embeddings", "nested_prefixes.md"),
)


def examples(text: str) -> list[str]:
    """Return the outputs that README prints below its examples."""
    return [found[3] for found in EXAMPLE.finditer(text) if found[2]]


def with_outputs(text: str) -> str:
    """Return README with its examples run and what they print below them."""
    names: dict[str, object] = {"__name__": "readme"}

    def run(found: re.Match[str]) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(found[1], "README.md", "exec"), names)
        # Sentences are wrapped; tables are narrower than that.
        shown = "\n".join(
            line if len(line) <= _WIDTH else textwrap.fill(line, _WIDTH)
            for line in out.getvalue().splitlines()
        )
        output = f"\n```text\n{shown}\n```\n" if found[2] else ""
        return f"```python\n{found[1]}```\n{output}"

    return EXAMPLE.sub(run, text)


def grid() -> str:
    """Return the rows of README's table, from the committed one."""
    rows = [
        [cell.strip() for cell in line.strip("|\n ").split("|")]
        for line in (ROOT / GRID).read_text("utf-8").splitlines()
        if line.startswith("|")
    ]
    shown = [row[2:7] for row in rows if tuple(row[:2]) == SHOWN]
    return "".join(f"| {' | '.join(row)} |\n" for row in shown)


def with_grid(text: str) -> str:
    """Return README with the rows of its table from the committed one."""
    begin = text.index(HEAD) + len(HEAD)
    return text[:begin] + grid() + text[text.index("\n\n", begin - 1) + 1 :]


def missing(text: str) -> list[str]:
    """Return what is wrong with the figures in sentences, one line each."""
    wrong = []
    for figure in FIGURES:
        table = (ROOT / "benchmarks/results" / figure.source).read_text("utf-8")
        number = figure.said.partition(" ")[0]
        for place, where in ((text, "README.md"), (table, figure.source)):
            if number not in place:
                wrong.append(f"{where} does not hold {figure.said} ({figure.data})")
    return wrong


def ledger(text: str, made: str) -> str:
    """Return the ledger of README's figures; ``made`` is when its examples ran."""
    lines = [
        "# Claims",
        "",
        "Every figure of README, with the data, the command and the date. "
        "`make claims` makes them again and writes README and this page; a test holds "
        "the two equal.",
        "",
        "## Outputs",
        "",
        "`python benchmarks/claims.py` runs README's examples, in seconds. Data: the "
        f"first 500 of scikit-learn's digits. {made}.",
        "",
        *(f"```text\n{output}```\n" for output in examples(text)),
        "## The table",
        "",
        "`python benchmarks/minimax.py grid --write`; data: MNIST, digit 5, 448 "
        "images.",
        "",
        f"{HEAD}{grid()}",
        "## In sentences",
        "",
        "| README says | data | table |",
        "|---|---|---|",
        *(
            f"| {f.said} | {f.data} | `benchmarks/results/{f.source}`, which names its "
            "command |"
            for f in FIGURES
        ),
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    """Write README and the ledger; return 1 if a figure has to be corrected."""
    sys.path.insert(0, str(ROOT / "src"))
    text = with_grid(with_outputs(README.read_text("utf-8")))
    README.write_text(text, "utf-8")
    LEDGER.write_text(ledger(text, datetime.date.today().isoformat()), "utf-8")
    wrong = missing(text)
    print(*(wrong or ["README.md and docs/claims.md are written."]), sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
