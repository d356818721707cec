"""Play a newcomer's first ten minutes from a fresh clone, and take pictures.

Run: python benchmarks/newcomer.py [FOLDER]

The clone gets an environment of its own. README's examples run as they are printed, and
so does the quick start; both are executed as notebooks too, and shown by nbconvert. The
report and the site are looked at in Chromium, light and dark, wide and narrow. What was
run, how long it took and what it printed is in FOLDER/transcript.txt.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(python|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXTRAS = ".[all,docs]"
NOTEBOOK = ("nbconvert", "ipykernel")
# Widths of a screen and of a phone.
WIDE, NARROW = 1400, 400
PAGES = ("index", "quickstart", "gallery/index", "api", "glossary", "search")


class Journey:
    """A clone with an environment of its own, and a transcript of what is done."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clone = folder.resolve(), folder.resolve() / "clone"
        self.bin = self.folder / "venv" / "bin"
        self.log: list[str] = []

    def run(self, *command: str, where: Path | None = None) -> None:
        """Run a command; keep what it prints; stop if it fails."""
        start = time.monotonic()
        done = subprocess.run(
            command,
            cwd=where or self.clone,
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.monotonic() - start
        text = f"$ {' '.join(command)[:500]}\n{done.stdout}"
        # Without a desktop the browser complains about it.
        text += "" if command[0] == "chromium" else done.stderr
        self.log.append(f"{text}[{done.returncode}, {seconds:.1f} s]\n")
        (self.folder / "transcript.txt").write_text("\n".join(self.log), "utf-8")
        if done.returncode:
            sys.exit(f"{text}failed with status {done.returncode}")

    def picture(self, name: str, page: Path, *, dark: bool, width: int) -> None:
        """Photograph a page."""
        shot = self.folder / f"{name}-{width}{'-dark' if dark else ''}.png"
        self.run(
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={self.folder / 'browser'}",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            f"--window-size={width},2000",
            f"--screenshot={shot}",
            f"{page.as_uri()}{'?q=hull' if name == 'search' else ''}",
        )


def play(folder: Path) -> None:
    """Do what a newcomer does, in the order of README."""
    journey = Journey(folder)
    clone, python = journey.clone, str(journey.bin / "python")
    journey.run("git", "clone", "-q", str(ROOT), str(clone), where=folder)
    venv.create(journey.bin.parent, with_pip=True)
    journey.run(python, "-m", "pip", "install", "-q", EXTRAS, *NOTEBOOK)
    journey.run(python, "-m", "isoproj", "demo")
    for page in ("README.md", "docs/quickstart.md"):
        blocks = FENCE.findall((clone / page).read_text("utf-8"))
        examples = [block for kind, block in blocks if kind == "python"]
        desk = folder.resolve() / Path(page).stem
        desk.mkdir()
        journey.run(python, "-c", "\n".join(examples), where=desk)
        for kind, block in blocks:
            for line in block.splitlines() if kind == "sh" else ():
                command = line.partition("#")[0].split()
                journey.run(str(journey.bin / command[0]), *command[1:], where=desk)
        notebook = desk / f"{desk.name}.ipynb"
        notebook.write_text(as_notebook(examples), "utf-8")
        for theme in ("light", "dark"):
            shown = f"{notebook.stem}-{theme}"
            convert = (
                "-m",
                "nbconvert",
                "--execute",
                "--to",
                "html",
                "--output",
                shown,
            )
            journey.run(python, *convert, "--theme", theme, notebook.name, where=desk)
            made = desk / f"{shown}.html"
            journey.picture(desk.name, made, dark=theme == "dark", width=1000)
    journey.run(python, "-m", "sphinx", "-W", "-q", "-b", "html", "docs", "site")
    looks = [(False, WIDE), (True, WIDE), (False, NARROW), (True, NARROW)]
    for dark, width in looks:
        journey.picture("report", desk / "wine.html", dark=dark, width=width)
        for name in PAGES:
            made = clone / "site" / f"{name}.html"
            journey.picture(name.replace("/", "-"), made, dark=dark, width=width)


def as_notebook(blocks: list[str]) -> str:
    """Return a notebook with a cell for each block, and the model shown at the end."""
    cells = [
        {
            "cell_type": "code",
            "execution_count": None,
            "metadata": {},
            "outputs": [],
            "source": source.rstrip("\n"),
        }
        for source in [*blocks, "model", "model.certificate_"]
    ]
    head = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    return json.dumps(head)


if __name__ == "__main__":
    chosen = Path(sys.argv[1] if len(sys.argv) > 1 else "build/newcomer")
    shutil.rmtree(chosen, ignore_errors=True)
    chosen.mkdir(parents=True)
    play(chosen)
    print(f"Look at the pictures in {chosen}; what was run is in transcript.txt.")
