"""Every page of recipes runs as it is printed."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

RECIPES = Path(__file__).parents[2] / "docs" / "recipes"
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = {
    path.stem: blocks
    for path in sorted(RECIPES.glob("*.md"))
    if (blocks := FENCE.findall(path.read_text(encoding="utf-8")))
}


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("page", PAGES)
def test_the_recipe_runs(page, tmp_path, monkeypatch):
    code = "\n".join(PAGES[page])
    for library in re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE):
        if library != "isoproj":
            try:
                importlib.import_module(library)
            except ImportError:
                pytest.skip(f"needs {library}")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, page, "exec"), {"__name__": "recipe"})


def test_all_recipes_with_code_are_here():
    assert set(PAGES) == {
        "anndata",
        "arrow",
        "faiss",
        "qdrant",
        "sentence-transformers",
        "sqlite-vec",
    }
