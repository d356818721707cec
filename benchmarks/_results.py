"""Where the tables of the benchmarks are kept, and how."""

from __future__ import annotations

from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def keep(script: str, part: str, lines: list[str], title: str | None = None) -> None:
    """Write the table of one part, under the command that makes it."""
    RESULTS.mkdir(exist_ok=True)
    command = f"`python benchmarks/{script}.py {part} --write`"
    text = "\n".join([f"# {title or script}: {part}", "", command, "", *lines, ""])
    (RESULTS / f"{script}_{part}.md").write_text(text)
