"""The parser of the command line; it imports no library, so help appears at once."""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

from isoproj._version import __version__
from isoproj.cli.errors import one_line
from isoproj.files.formats import BUILT_IN, EXTENSIONS

__all__ = ["EXPORTS", "VERBS", "build_parser"]

# Systems to export to, with the extensions of their files.
EXPORTS = {
    "faiss": ".faiss",
    "halfvec": ".sql",
    "npy": ".npy",
    "onnx": ".onnx",
    "pgvector": ".sql",
    "postgres": ".sql",
    "safetensors": ".safetensors",
    "sentence-transformers": ".dense",
    "skops": ".skops",
}
_DATA = (
    f"a file ({' '.join(name for name in EXTENSIONS if name != '.isoproj')}; some also "
    f".gz), FILE:ARRAY, - for a pipe, or a built-in data set: {', '.join(BUILT_IN)}"
)
_STATUS = (
    "Exit status: 0 done, 1 a claim failed, 2 bad usage or input, 130 stopped by "
    "Ctrl-C."
)


# A parser, or a group of options.
_Options: TypeAlias = argparse._ActionsContainer


class _Parser(argparse.ArgumentParser):
    """A parser whose error messages are one line."""

    def error(self, message: str) -> NoReturn:
        known = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        hint = f"See {self.prog} -h."
        if known:
            choices = [word.strip(" '") for word in known[2].split(",")]
            near = difflib.get_close_matches(known[1], choices, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else hint
        sys.stderr.write(f"{self.prog}: {one_line(message)}. {hint}\n")
        raise SystemExit(2)


class _Print(argparse.Action):
    """An option that prints a text and ends the program."""

    def __init__(
        self,
        option_strings: Sequence[str],
        dest: str,
        make: Callable[[argparse.ArgumentParser, str], str],
        **kwargs: Any,  # noqa: ANN401 - argparse's own
    ) -> None:
        super().__init__(option_strings, dest, **kwargs)
        self.make = make

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,  # noqa: ARG002
        values: str | Sequence[Any] | None,
        option_string: str | None = None,  # noqa: ARG002
    ) -> None:
        """Print the text for the value of the option."""
        sys.stdout.write(self.make(parser, str(values)))
        parser.exit()


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the program, with one subparser for every verb."""
    parser = _Parser(
        prog="isoproj",
        description="Orthogonal projections whose worst pair loses least, with proof.",
        epilog="example: isoproj fit digits -k 10 -o digits.isoproj\n"
        "         isoproj verify digits.isoproj digits\n"
        "isoproj VERB -h explains one verb.\n" + _STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"isoproj {__version__}")
    parser.add_argument(
        "--completion",
        action=_Print,
        make=_completion,
        choices=["bash", "zsh", "fish"],
        help="print a script that lets a shell complete verbs and options",
    )
    parser.add_argument(
        "--schema",
        action=_Print,
        make=_schema,
        choices=list(VERBS),
        help="print the JSON schema of what VERB --json prints",
    )
    verbs = parser.add_subparsers(
        dest="verb", required=True, metavar="VERB", parser_class=_Parser
    )
    for name, (summary, example, add) in VERBS.items():
        verb = verbs.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=f"example: {example}\n{_STATUS}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add(verb)
        _add_talk(verb)
    return parser


def _add_talk(verb: argparse.ArgumentParser) -> None:
    """Add the options about output that every verb has."""
    verb.add_argument(
        "--json",
        action="store_true",
        help="print the result as JSON (isoproj --schema VERB documents it)",
    )
    talk = verb.add_mutually_exclusive_group()
    talk.add_argument(
        "-q", "--quiet", action="store_true", help="show no progress and no notes"
    )
    talk.add_argument(
        "-v", "--verbose", action="store_true", help="show every step and tracebacks"
    )


def _add_data(verb: argparse.ArgumentParser) -> None:
    """Add the data, and options that select a part of them."""
    verb.add_argument("data", metavar="DATA", help=_DATA)
    verb.add_argument(
        "--array", metavar="NAME", help="which array of a file that holds several"
    )
    verb.add_argument(
        "--columns",
        metavar="LIST",
        help="which columns: names, numbers from 0, ranges; as in a,b or 0,2:5",
    )
    verb.add_argument(
        "--header",
        choices=["auto", "yes", "no"],
        default="auto",
        help="whether the first line of a text file names the columns (default auto)",
    )


def _add_k(verb: _Options, text: str, **settings: Any) -> None:  # noqa: ANN401
    """Add the number of dimensions; ``settings`` are those of ``add_argument``."""
    names = ("-k", "--n-components")
    verb.add_argument(*names, type=int, metavar="K", help=text, **settings)


def _add_force(verb: argparse.ArgumentParser) -> None:
    """Add the permission to overwrite files."""
    verb.add_argument(
        "--force", action="store_true", help="overwrite FILE if it exists"
    )


def _add_memory(verb: argparse.ArgumentParser) -> None:
    """Add the memory limit."""
    verb.add_argument(
        "--memory-limit",
        type=_bytes,
        metavar="BYTES",
        help="memory for arrays as large as the data, as in 500M or 8G (default 2G); "
        "larger arrays lie in scratch files under TMPDIR",
    )


def _bytes(text: str) -> float:
    """Return the number of bytes in a text such as 500M."""
    number = text.strip().upper().removesuffix("B")
    unit = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}.get(number[-1:], 1.0)
    try:
        size = float(number if unit == 1.0 else number[:-1]) * unit
    except ValueError:
        size = -1.0
    if not size >= 0.0:
        msg = f"must be a number of bytes, as in 500M or 8G; got {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return size


def _add_model(
    verb: argparse.ArgumentParser, text: str = "a model file of isoproj fit"
) -> None:
    """Add the model."""
    verb.add_argument("model", metavar="MODEL", help=text)


def _add_output(
    verb: argparse.ArgumentParser, text: str, *, required: bool = False
) -> None:
    """Add the output file."""
    verb.add_argument("-o", "--output", metavar="FILE", required=required, help=text)
    _add_force(verb)


def _add_seed(verb: argparse.ArgumentParser, *older_names: str) -> None:
    """Add the seed of random numbers, 0 unless given, so that runs repeat."""
    verb.add_argument(
        "--seed",
        *older_names,
        type=int,
        default=0,
        metavar="SEED",
        help="seed of random starts and samples (default 0); the same seed gives the "
        "same result",
    )


def _add_method(verb: argparse.ArgumentParser) -> None:
    """Add the method of a fit, and the options that only one method has."""
    verb.add_argument(
        "--method",
        choices=["near-isometric", "guaranteed-pca"],
        default="near-isometric",
        help="minimise the loss of the worst pair (default), or keep the most variance "
        "under a cap on the loss of any pair",
    )
    verb.add_argument(
        "--max-distortion",
        type=float,
        metavar="D",
        help="the cap: largest allowed loss of any pair, as a share of squared length",
    )
    verb.add_argument(
        "--slack",
        type=float,
        metavar="S",
        help="guaranteed-pca: without --max-distortion the cap is 1 + S times the "
        "least distortion found (default 0.05)",
    )
    verb.add_argument(
        "--objective",
        choices=["variance", "distortion"],
        help="guaranteed-pca: keep the most variance (default), or lose the least on "
        "average",
    )
    verb.add_argument(
        "--solver",
        choices=["minimax", "dual_ascent"],
        help="near-isometric: minimax finds the least loss (default); dual_ascent is "
        "the paper's algorithm",
    )


def _add_fit(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``isoproj fit``."""
    _add_data(verb)
    _add_k(
        verb,
        "number of dimensions to keep; without it, the fewest that --max-distortion "
        "allows",
    )
    _add_output(verb, "file for the model, by convention *.isoproj")
    _add_method(verb)
    _add_pairs(verb)
    verb.add_argument(
        "--nested",
        type=int,
        nargs="+",
        metavar="K",
        help="make the first K dimensions a good projection too, for each K given; "
        "each has its own certificate",
    )
    verb.add_argument(
        "--nested-weights",
        type=float,
        nargs="+",
        metavar="W",
        help="how much each prefix and, last, -k matters (default: alike)",
    )
    verb.add_argument(
        "--heldout",
        type=_part,
        metavar="SHARE",
        help="hold out this share or number of points and measure the losses of their "
        "pairs; the certificate is about the other points",
    )
    verb.add_argument(
        "--scale",
        choices=["balanced"],
        help="scale projected points so that the largest gain of squared length equals "
        "the largest loss",
    )
    verb.add_argument(
        "--tol",
        type=float,
        metavar="GAP",
        help="relative gap between value and bound at which the solver stops",
    )
    verb.add_argument(
        "--max-iter", type=int, metavar="N", help="largest number of iterations"
    )
    verb.add_argument(
        "--time-limit",
        type=float,
        metavar="SECONDS",
        help="stop after this time with the best certified result so far",
    )
    _add_seed(verb, "--random-state")
    _add_memory(verb)


def _part(text: str) -> float | int:
    """Return a share or a number of rows, from a text."""
    return int(text) if text.isdecimal() else float(text)


def _add_pairs(verb: argparse.ArgumentParser) -> None:
    """Add the options that say which pairs count."""
    verb.add_argument(
        "--pairs",
        metavar="WHICH",
        help="which pairs count: all; directions (every row is a direction); sample "
        "(random pairs, if all are too many); neighbors, or approximate-neighbors by "
        "pynndescent; labels (pairs of different classes) or within-labels; or a file "
        "with two columns of row numbers",
    )
    verb.add_argument(
        "--neighbors",
        type=int,
        metavar="N",
        help="neighbors of each point with --pairs neighbors (default 10)",
    )
    verb.add_argument(
        "--min-distance",
        type=float,
        metavar="D",
        help="leave out pairs closer than this",
    )
    verb.add_argument(
        "--include-norms",
        action="store_true",
        default=None,
        help="count every row as a direction too, which preserves inner products",
    )
    verb.add_argument(
        "--labels",
        metavar="FILE",
        help="a text file with the class of every point, one a line, for --pairs "
        "labels",
    )


def _add_transform(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``isoproj transform``."""
    _add_model(verb)
    _add_data(verb)
    _add_output(
        verb,
        "file for the projected points, in the format of its extension; - writes .npy "
        "to standard output",
        required=True,
    )
    _add_memory(verb)


_MAP = (
    "a model file; a matrix; a transform or pre-transform index of faiss; an ONNX file "
    "with one linear layer; a folder with a Dense module of sentence-transformers; a "
    "skops pipeline; or first:K for the first K columns"
)


def _add_audit(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``isoproj audit``."""
    verb.add_argument("model", metavar="MAP", help=_MAP)
    _add_data(verb)
    verb.add_argument(
        "--orientation",
        choices=["rows", "columns"],
        help="what one output coordinate of a square matrix is: a row or a column",
    )
    _add_pairs(verb)
    verb.add_argument(
        "--worst",
        type=int,
        default=5,
        metavar="N",
        help="number of worst pairs to list",
    )
    verb.add_argument(
        "--at-most",
        "--max-distortion",
        dest="max_distortion",
        type=float,
        metavar="D",
        help="exit 1 if the worst pair loses more than this share",
    )
    _add_recall(verb)
    _add_memory(verb)


def _add_neighbors(verb: argparse.ArgumentParser) -> None:
    """Add the options about nearest neighbours."""
    verb.add_argument(
        "--recall",
        nargs="+",
        type=int,
        metavar="K",
        help="share of the K nearest rows that stay among the K nearest, exact",
    )
    verb.add_argument(
        "--metric",
        choices=["euclidean", "cosine", "inner_product"],
        default="euclidean",
        help="how near is measured for recall (default euclidean)",
    )


def _add_recall(verb: argparse.ArgumentParser) -> None:
    """Add the options about nearest neighbours, and what is asked of them."""
    _add_neighbors(verb)
    verb.add_argument(
        "--recall-at-least",
        type=float,
        metavar="R",
        help="exit 1 if a recall is lower (of the 10 nearest, without --recall)",
    )
    verb.add_argument(
        "--queries",
        metavar="DATA",
        help="points whose neighbours in DATA are looked for (default: every row of "
        "DATA); --at-most holds for the distances to these neighbours too",
    )


def _add_verify(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``isoproj verify``."""
    _add_model(verb)
    _add_data(verb)
    _add_memory(verb)


def _add_info(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``isoproj info``."""
    verb.add_argument("file", metavar="FILE", help="a model, or data as for fit")


def _add_export(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``isoproj export``."""
    _add_model(verb)
    verb.add_argument(
        "--to",
        required=True,
        choices=list(EXPORTS),
        help=(
            "the other system; pgvector and halfvec write SQL for pgvector, postgres "
            "SQL for plain arrays, sentence-transformers a folder for Dense.load"
        ),
    )
    _add_output(verb, "output file (default: name of the model, other extension)")
    verb.add_argument(
        "--name",
        default="isoproj_project",
        help="name of the SQL function (default isoproj_project)",
    )


def _add_compare(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``isoproj compare``."""
    _add_data(verb)
    _add_k(verb, "numbers of dimensions to compare at", nargs="+", required=True)
    verb.add_argument(
        "--methods",
        nargs="+",
        metavar="NAME",
        help="minimax guaranteed dual_ascent sdp+dr sdp+rr sdp+binned sap fair_pca "
        "fair_pca+seq stable_pca pca pca_directions random gaussian adagio "
        "nile_pro fro_max nu_max (default: minimax, dual_ascent, sdp+dr, "
        "sdp+rr, sap, fair_pca, pca and random)",
    )
    verb.add_argument(
        "--seeds",
        nargs="+",
        type=int,
        default=[0],
        metavar="SEED",
        help="seeds of random starts and draws, one fit for each (default 0)",
    )
    verb.add_argument(
        "--time-limit", type=float, metavar="SECONDS", help="for each single fit"
    )
    verb.add_argument(
        "--metric",
        default="contracted",
        choices=["contracted", "distortion", "stretch", "isometry", "mean", "seconds"],
        help="the number in the table (default contracted: loss of the worst pair, "
        "after the map is scaled so that no pair gains)",
    )
    verb.add_argument(
        "--maps",
        nargs="+",
        default=[],
        metavar="MAP",
        help=f"maps to measure beside the methods: {_MAP}",
    )
    _add_output(verb, "file for the records, as JSON lines")
    verb.add_argument(
        "--plot", metavar="FILE", help="file for a plot (.png, .svg or .pdf)"
    )


def _add_tracing(verb: argparse.ArgumentParser, tol: float) -> None:
    """Add the options that ``curve`` and ``frontier`` share."""
    _add_pairs(verb)
    verb.add_argument(
        "--tol",
        type=float,
        default=tol,
        metavar="GAP",
        help=f"relative gap between value and bound to stop at (default {tol:g})",
    )
    _add_seed(verb)
    verb.add_argument(
        "--plot", metavar="FILE", help="file for the plot (.png, .svg or .pdf)"
    )
    _add_force(verb)


def _add_curve(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``isoproj curve``."""
    _add_data(verb)
    which = verb.add_mutually_exclusive_group()
    _add_k(which, "numbers of dimensions (default: 1 to --max-k)", nargs="+")
    which.add_argument(
        "--max-k", type=int, default=40, metavar="K", help="largest k (default 40)"
    )
    verb.add_argument(
        "--targets",
        type=float,
        nargs="+",
        default=[],
        metavar="DISTORTION",
        help="print which k suffices for these distortions and which is too small",
    )
    verb.add_argument(
        "--time-limit",
        type=float,
        metavar="SECONDS",
        help="stop after this time with the results so far",
    )
    _add_tracing(verb, 5e-3)


def _add_frontier(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``isoproj frontier``."""
    _add_data(verb)
    _add_k(verb, "number of dimensions", required=True)
    verb.add_argument(
        "--n-points",
        type=int,
        default=7,
        metavar="N",
        help="number of caps (default 7)",
    )
    verb.add_argument(
        "--objective",
        default="variance",
        choices=["variance", "distortion"],
        help="what to keep: variance (default), or mean squared length",
    )
    _add_tracing(verb, 1e-3)


def _add_report(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``isoproj report``."""
    _add_model(verb)
    _add_data(verb)
    _add_output(verb, "file for the report: .html, .md or .json", required=True)
    verb.add_argument(
        "--heldout", metavar="DATA", help="points outside the fit to measure as well"
    )
    verb.add_argument(
        "--labels",
        metavar="FILE",
        help="a text file with a line for every point, shown with the worst pairs",
    )
    verb.add_argument(
        "--image-shape",
        metavar="HxW",
        help="height and width if points are images; square images are recognised",
    )
    verb.add_argument(
        "--frontier",
        type=int,
        metavar="N",
        help="add the share kept under N other caps; takes as long as isoproj frontier",
    )
    verb.add_argument(
        "--maps",
        nargs="+",
        default=[],
        metavar="MAP",
        help=f"maps to measure beside the model: {_MAP}",
    )
    _add_neighbors(verb)
    verb.add_argument(
        "--max-pairs",
        type=int,
        default=20_000_000,
        metavar="N",
        help="if there are more pairs, measure a sample of rows, which the report says "
        "(default 20,000,000)",
    )


def _add_reproduce(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``isoproj reproduce``."""
    verb.add_argument(
        "--list", action="store_true", help="list the experiments and run nothing"
    )
    verb.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="NAME",
        help="run only these experiments, for example figure1 or table1",
    )
    extent = verb.add_mutually_exclusive_group()
    extent.add_argument(
        "--quick",
        action="store_true",
        help="small samples and two seeds: minutes (the default)",
    )
    extent.add_argument(
        "--full",
        action="store_true",
        help="all samples and five seeds, as in the paper: hours",
    )
    verb.add_argument(
        "-o",
        "--output",
        metavar="FOLDER",
        default="results",
        help="folder for records and figures; the page is FOLDER.md (default results). "
        "Finished cells in it are kept",
    )
    verb.add_argument(
        "--report",
        action="store_true",
        help="run nothing; make page and figures from existing records",
    )
    verb.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="number of cells to run at once, one thread each (default: one a core)",
    )
    verb.add_argument(
        "--offline", action="store_true", help="do not download data that is missing"
    )


def _add_demo(verb: argparse.ArgumentParser) -> None:
    """Add the arguments of ``isoproj demo``."""
    _add_k(verb, "number of dimensions to keep (default 10)", default=10)


def _completion(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the completion script of a shell."""
    from isoproj.cli.completion import script

    return script(parser, shell)


def _schema(_: argparse.ArgumentParser, verb: str) -> str:
    """Return the JSON schema of a verb."""
    from isoproj.cli.schemas import schema_of

    return json.dumps(schema_of(verb), indent=2) + "\n"


_Adder = Callable[[argparse.ArgumentParser], None]
# For every verb: its summary, an example, and the function that adds its arguments.
VERBS: dict[str, tuple[str, str, _Adder]] = {
    "fit": (
        "find the projection whose worst pair loses least, and certify it",
        "isoproj fit embeddings.npy -k 64 -o model.isoproj",
        _add_fit,
    ),
    "transform": (
        "project points with a model",
        "isoproj transform model.isoproj embeddings.npy -o reduced.npy",
        _add_transform,
    ),
    "audit": (
        "measure what any linear map does to all pairs, exactly",
        "isoproj audit first:256 embeddings.npy --at-most 0.6 --recall-at-least 0.9",
        _add_audit,
    ),
    "verify": (
        "recompute every claim of a model from the data",
        "isoproj verify model.isoproj embeddings.npy",
        _add_verify,
    ),
    "info": (
        "show what is in a data or model file",
        "isoproj info model.isoproj",
        _add_info,
    ),
    "export": (
        "write the projection for another system",
        "isoproj export model.isoproj --to faiss -o model.faiss",
        _add_export,
    ),
    "compare": (
        "fit several methods and measure all of them alike",
        "isoproj compare digits -k 5 10 20 --methods minimax pca random",
        _add_compare,
    ),
    "curve": (
        "show distortion and lower bound for many numbers of dimensions",
        "isoproj curve embeddings.npy --max-k 40 --targets 0.2 0.5 --plot curve.png",
        _add_curve,
    ),
    "frontier": (
        "show the variance kept for several caps on the worst pair",
        "isoproj frontier embeddings.npy -k 20 --plot frontier.png",
        _add_frontier,
    ),
    "report": (
        "write a report about a model and its data",
        "isoproj report model.isoproj embeddings.npy -o report.html",
        _add_report,
    ),
    "reproduce": (
        "run the experiments of the paper: numbers, figures, verdicts",
        "isoproj reproduce --quick --only figure1 -o results",
        _add_reproduce,
    ),
    "demo": (
        "fit, certify and compare on a data set that ships with scikit-learn",
        "isoproj demo -k 10",
        _add_demo,
    ),
}
