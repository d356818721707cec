"""How the documentation is built: ``make docs``."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
from docutils.nodes import SkipNode
from latex2mathml.converter import convert
from sphinx.domains.python import PyObject

from isoproj import __version__

project = "isoproj"
copyright = "the isoproj contributors"  # noqa: A001 - Sphinx's name
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
templates_path: list[str] = []

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_default_options = {"members": True, "inherited-members": False}
autodoc_typehints = "none"
autosummary_generate = False
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

html_math_renderer = "mathml"
html_theme = "furo"
html_title = f"isoproj {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0072b2",
        "color-brand-content": "#0072b2",
    },
    "dark_css_variables": {
        "color-brand-primary": "#56b4e9",
        "color-brand-content": "#56b4e9",
    },
}


def _escape_underscores(*event: Any) -> None:
    """Keep reStructuredText from reading names like ``n_components_`` as links."""
    lines: list[str] = event[-1]
    for at, line in enumerate(lines):
        names, colon, kind = line.partition(" : ")
        if colon:
            names = re.sub(r"(\w)_(?=,)", r"\1\\_", names)
            kind = re.sub(r"(\w)_(?=[,)\s]|$)", r"\1\\_", kind)
            lines[at] = f"{names}{colon}{kind}"


def _escape_fields(*event: Any) -> None:
    """Keep the underscore at the end of attributes, where napoleon has put them."""
    lines: list[str] = event[-1]
    for at, line in enumerate(lines):
        if field := re.match(r":(ivar|vartype) ([^:]*):", line):
            names = re.sub(r"(?<!\\)_(?=,|$)", r"\\_", field[2])
            lines[at] = f":{field[1]} {names}:{line[field.end() :]}"


def _inline_mathml(writer: Any, node: Any) -> None:
    """Write a formula in a line as MathML, which browsers show without a script."""
    writer.body.append(convert(node.astext()))
    raise SkipNode


def _block_mathml(writer: Any, node: Any) -> None:
    """Write a formula of its own as MathML."""
    formula = convert(node.astext(), display="block")
    writer.body.append(f'<div class="math">{formula}</div>')
    raise SkipNode


def _draw_gallery(app: Any) -> None:
    """Run the examples of the gallery whose pictures are older than their pages."""
    gallery = Path(app.srcdir) / "gallery"
    pictures = gallery / "pictures"
    pictures.mkdir(exist_ok=True)
    for page in sorted(gallery.glob("*.md")):
        blocks = re.findall(
            r"^```python\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
        )
        picture = pictures / f"{page.stem}.png"
        made = picture.stat().st_mtime if picture.exists() else 0.0
        if blocks and made < page.stat().st_mtime:
            subprocess.run(
                [sys.executable, "-c", "\n".join(blocks)],
                cwd=pictures,
                check=True,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "MPLBACKEND": "Agg"},
            )


def _show_outputs(app: Any, page: str, source: list[str]) -> None:
    """Run the examples of a page, and put below each what it prints and draws.

    Recipes need other systems, and the gallery makes its own pictures.
    """
    if page.startswith(("recipes/", "gallery/")) or "```python" not in source[0]:
        return
    pictures = Path(app.srcdir) / "pictures"
    pictures.mkdir(exist_ok=True)
    blocks = re.split(
        r"(^```python\n.*?^```\n)", source[0], flags=re.MULTILINE | re.DOTALL
    )
    names: dict[str, Any] = {"__name__": page}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for at in range(1, len(blocks), 2):
            out = io.StringIO()
            with contextlib.redirect_stdout(out), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                # An example turns its log on, and Dask writes one.
                logging.disable(logging.INFO)
                exec(compile(blocks[at][10:-4], page, "exec"), names)
            logging.disable(logging.NOTSET)
            if out.getvalue():
                text = out.getvalue().rstrip()
                blocks[at] += (
                    f"\n:::{{code-block}} text\n:class: printed\n{text}\n:::\n"
                )
            for number in plt.get_fignums():
                name = f"{page.replace('/', '-')}-{at}-{number}.png"
                plt.figure(number).savefig(
                    pictures / name, dpi=110, bbox_inches="tight"
                )
                blocks[at] += f"\n![What the example draws](/pictures/{name})\n"
            plt.close("all")
    source[0] = "".join(blocks)


def setup(app: Any) -> None:
    """Write formulas as MathML; escape before napoleon reads the docstrings."""
    matplotlib.use("Agg")
    for kind in PyObject.doc_field_types:
        if kind.name == "variable":
            kind.label = "Attributes"
    app.connect("builder-inited", _draw_gallery)
    app.connect("source-read", _show_outputs)
    app.add_html_math_renderer("mathml", (_inline_mathml, None), (_block_mathml, None))
    app.connect("autodoc-process-docstring", _escape_underscores, priority=400)
    app.connect("autodoc-process-docstring", _escape_fields, priority=600)
