"""The parser of the command line; it imports no library, so help appears at once."""

from __future__ import annotations

import argparse
import difflib
import json
import math
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias

from isoproj._version import __version__
from isoproj.cli.errors import one_line
from isoproj.files.formats import BUILT_IN, EXTENSIONS

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
# Methods that ``compare`` knows.
METHODS = (
    "minimax guaranteed dual_ascent sdp+dr sdp+rr sdp+binned sap fair_pca fair_pca+seq "
    "stable_pca pca pca_directions random gaussian adagio nile_pro fro_max nu_max"
)
_STATUS = (
    "Exit status: 0 done, 1 a claim failed, 2 bad usage or input, 130 stopped by "
    "Ctrl-C."
)


class _Parser(argparse.ArgumentParser):
    """A parser whose error messages are one line."""

    def error(self, message: str) -> NoReturn:
        known = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        hint = f"See {self.prog} -h."
        if known:
            choices = [word.strip(" '") for word in known[2].split(",")]
            near = difflib.get_close_matches(known[1], choices, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else hint
        # "argument -k/--n-components: must ..." reads "-k must ...".
        message = re.sub(r"^argument ([^/:]+)[^:]*: must", r"\1 must", message)
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


class _Argument:
    """An argument of a verb, as ``add_argument`` takes it."""

    def __init__(self, names: str, metavar: str | None, text: str, **more: Any) -> None:  # noqa: ANN401
        self.names = names.split()
        self.settings = {"help": text, **more}
        if metavar is not None:
            self.settings["metavar"] = metavar

    def add_to(self, verb: argparse._ActionsContainer) -> None:
        """Add the argument to a parser or to a group of options."""
        verb.add_argument(*self.names, **self.settings)


class _Either:
    """Options of which a user may give one."""

    def __init__(self, *arguments: _Argument) -> None:
        self.arguments = arguments

    def add_to(self, verb: argparse._ActionsContainer) -> None:
        """Add the options to a parser, as a group."""
        group = verb.add_mutually_exclusive_group()
        for argument in self.arguments:
            argument.add_to(group)


_Arguments: TypeAlias = Sequence[_Argument | _Either]


class _Verb(NamedTuple):
    """What the parser knows of a verb."""

    summary: str
    example: str
    arguments: _Arguments


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of a command line, or exit; without a verb, print the help."""
    parser = build_parser()
    if not arguments:
        parser.print_help()
        parser.exit()
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        name = unknown[0].partition("=")[0]
        verb = verbs_of(parser)[options.verb]
        near = difflib.get_close_matches(name, verb._option_string_actions, 1, 0.75)
        hint = f"Did you mean {near[0]}?" if near else f"See {verb.prog} -h."
        what = "an option" if name.startswith("-") else "expected here"
        sys.stderr.write(f"{verb.prog}: {one_line(name)!r} is not {what}. {hint}\n")
        raise SystemExit(2)
    return options


def verbs_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parser of every verb."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


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
    for name, (summary, example, arguments) in VERBS.items():
        verb = verbs.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=f"example: {example}\n{_STATUS}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for argument in (*arguments, *_TALK):
            argument.add_to(verb)
    return parser


def _completion(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the completion script of a shell."""
    from isoproj.cli.completion import script

    return script(verbs_of(parser), shell)


def _schema(_: argparse.ArgumentParser, verb: str) -> str:
    """Return the JSON schema of a verb."""
    from isoproj.cli.payloads import schema_of

    return json.dumps(schema_of(verb), indent=2) + "\n"


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


def _number_of(
    kind: type[int | float], least: float | None, most: float
) -> Callable[[str], float]:
    """Return a function that reads a number; ``least`` None means above 0."""
    what = "a whole number" if kind is int else "a number"
    what += " above 0" if least is None else f", {least:g} or more"
    what += f", at most {most:g}" if most < math.inf else ""

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = kind(-1)
        above = value > 0.0 if least is None else value >= least
        if not (above and value <= most and value < math.inf):
            msg = f"must be {what}; got {text!r}"
            raise argparse.ArgumentTypeError(msg)
        return value

    return read


def _part(text: str) -> float | int:
    """Return a share or a number of rows, from a text."""
    return int(text) if text.isdecimal() else float(text)


def _flag(names: str, text: str, **more: Any) -> _Argument:  # noqa: ANN401
    """Return an option without a value."""
    return _Argument(names, None, text, action="store_true", **more)


def _choice(names: str, choices: str, text: str, **more: Any) -> _Argument:  # noqa: ANN401
    """Return an option whose value is one of the words ``choices``."""
    return _Argument(names, None, text, choices=choices.split(), **more)


def _whole(
    names: str,
    metavar: str,
    text: str,
    *,
    least: int = 1,
    **more: Any,  # noqa: ANN401
) -> _Argument:
    """Return an option whose value, or values, are whole numbers."""
    kind = _number_of(int, least, math.inf)
    return _Argument(names, metavar, text, type=kind, **more)


def _number(
    names: str,
    metavar: str,
    text: str,
    *,
    least: float | None = None,
    most: float = math.inf,
    **more: Any,  # noqa: ANN401
) -> _Argument:
    """Return an option whose value, or values, are numbers, above 0 if no ``least``."""
    kind = _number_of(float, least, most)
    return _Argument(names, metavar, text, type=kind, **more)


def _dimensions(text: str, **more: Any) -> _Argument:  # noqa: ANN401
    """Return the option for the number of dimensions."""
    return _whole("-k --n-components", "K", text, **more)


def _output(text: str, **more: Any) -> _Arguments:  # noqa: ANN401
    """Return the options for an output file."""
    return _Argument("-o --output", "FILE", text, **more), _FORCE


def _time_limit(text: str) -> _Argument:
    """Return the option for a number of seconds."""
    return _number("--time-limit", "SECONDS", text)


def _seed(*older_names: str) -> _Argument:
    """Return the option for the seed of random numbers; the default repeats runs."""
    return _whole(
        " ".join(["--seed", *older_names]),
        "SEED",
        "seed of random starts and samples (default 0); the same seed gives the "
        "same result",
        least=0,
        default=0,
    )


def _maps(beside: str) -> _Argument:
    """Return the option for maps that are measured beside others."""
    text = f"maps to measure beside {beside}: {_MAP}"
    return _Argument("--maps", "MAP", text, nargs="+", default=[])


def _tracing(tol: float) -> _Arguments:
    """Return the options that ``curve`` and ``frontier`` share."""
    return (
        *_PAIRS,
        _number(
            "--tol",
            "GAP",
            f"stop when at most this share above the lower bound (default {tol:g})",
            default=tol,
        ),
        _seed(),
        _Argument("--plot", "FILE", "file for the plot: .png, .svg or .pdf"),
        _FORCE,
    )


_TALK = (
    _flag("--json", "print the result as JSON (isoproj --schema VERB documents it)"),
    _Either(
        _flag("-q --quiet", "show no progress and no notes"),
        _flag("-v --verbose", "show every step and tracebacks"),
    ),
)
_FORCE = _flag("--force", "overwrite FILE if it exists")
_MODEL = _Argument("model", "MODEL", "a model file of isoproj fit")
_MAP = (
    "a model file; a matrix; a transform or pre-transform index of faiss; an ONNX file "
    "with one linear layer; a folder with a Dense module of sentence-transformers; a "
    "skops pipeline; or first:K for the first K columns"
)
_DATA = (
    _Argument(
        "data",
        "DATA",
        f"a file ({' '.join(name for name in EXTENSIONS if name != '.isoproj')}; some "
        "also .gz), FILE:ARRAY, - for a pipe, or a built-in data set: "
        f"{', '.join(BUILT_IN)}",
    ),
    _Argument("--array", "NAME", "which array of a file that holds several"),
    _Argument(
        "--columns",
        "LIST",
        "which columns: names, numbers from 0, ranges; as in a,b or 0,2:5",
    ),
    _choice(
        "--header",
        "auto yes no",
        "whether the first line of a text file names the columns (default auto)",
        default="auto",
    ),
)
_MEMORY = _Argument(
    "--memory-limit",
    "BYTES",
    "memory for arrays as large as the data, as in 500M or 8G (default 2G); "
    "larger arrays lie in scratch files under TMPDIR",
    type=_bytes,
)
_PAIRS = (
    _Argument(
        "--pairs",
        "WHICH",
        "which pairs count: all; directions (every row is a direction); sample "
        "(random pairs, if all are too many); neighbors, or approximate-neighbors by "
        "pynndescent; labels (pairs of different classes) or within-labels; queries "
        "(of a query and another row: the labels are 1 and 0); or a file "
        "with two columns of row numbers",
    ),
    _whole(
        "--neighbors",
        "N",
        "neighbors of each point with --pairs neighbors (default 10)",
    ),
    _number("--min-distance", "D", "leave out pairs closer than this", least=0),
    _flag(
        "--include-norms",
        "count every row as a direction too, which preserves inner products",
        default=None,
    ),
    _Argument(
        "--labels",
        "FILE",
        "a text file with the class of every point, one a line, for --pairs labels",
    ),
)
_NEIGHBORS = (
    _whole(
        "--recall",
        "K",
        "share of the K nearest rows that stay among the K nearest, exact",
        nargs="+",
    ),
    _choice(
        "--metric",
        "euclidean cosine inner_product",
        "how near is measured for recall (default euclidean)",
        default="euclidean",
    ),
)
_METHOD = (
    _choice(
        "--method",
        "near-isometric guaranteed-pca",
        "minimise the loss of the worst pair (default), or keep the most variance "
        "under a cap on the loss of any pair",
        default="near-isometric",
    ),
    _number(
        "--max-distortion",
        "D",
        "the cap: largest allowed loss of any pair, as a share of squared length",
        most=1,
    ),
    _number(
        "--slack",
        "S",
        "guaranteed-pca: without --max-distortion the cap is 1 + S times the "
        "least loss found (default 0.05)",
        least=0,
    ),
    _choice(
        "--objective",
        "variance distortion",
        "guaranteed-pca: keep the most variance (default), or lose the least on "
        "average",
    ),
    _choice(
        "--solver",
        "minimax dual_ascent",
        "near-isometric: minimax finds the least loss of the worst pair (default); "
        "dual_ascent is the algorithm of the paper",
    ),
)
_FIT = (
    *_DATA,
    _dimensions(
        "number of dimensions to keep; without it, the fewest that --max-distortion "
        "allows"
    ),
    *_output("file for the model, by convention *.isoproj"),
    *_METHOD,
    *_PAIRS,
    _whole(
        "--nested",
        "K",
        "make the first K dimensions a good projection too, for each K given; "
        "each has its own certificate",
        nargs="+",
    ),
    _number(
        "--nested-weights",
        "W",
        "how much each prefix and, last, -k matters (default: alike)",
        nargs="+",
    ),
    _Argument(
        "--heldout",
        "SHARE",
        "hold out this share or number of points and measure the losses of their "
        "pairs; the certificate is about the other points",
        type=_part,
    ),
    _choice(
        "--scale",
        "balanced",
        "scale projected points so that the largest gain of squared length equals "
        "the largest loss",
    ),
    _number(
        "--tol",
        "GAP",
        "stop when at most this share above the lower bound: 0.01 is 1%%",
    ),
    _whole("--max-iter", "N", "largest number of iterations"),
    _time_limit("stop after this time with the best certified result so far"),
    _Argument(
        "--checkpoint",
        "FILE",
        "near-isometric: keep the state here after every round; a fit that was killed "
        "goes on from there",
    ),
    _flag("--estimate", "say what the fit would take, and what else there is; no fit"),
    _seed("--random-state"),
    _MEMORY,
)
_TRANSFORM = (
    _MODEL,
    *_DATA,
    *_output(
        "file for the projected points, in the format of its extension; - writes .npy "
        "to standard output",
        required=True,
    ),
    _MEMORY,
)
_AUDIT = (
    _Argument("model", "MAP", _MAP),
    *_DATA,
    _choice(
        "--orientation",
        "rows columns",
        "what one output coordinate of a square matrix is: a row or a column",
    ),
    *_PAIRS,
    _whole("--worst", "N", "number of worst pairs to list", default=5),
    _number(
        "--at-most --max-distortion",
        "D",
        "exit 1 if the worst pair loses more than this share",
        dest="max_distortion",
        least=0,
        most=1,
    ),
    *_NEIGHBORS,
    _number(
        "--recall-at-least",
        "R",
        "exit 1 if a recall is lower (of the 10 nearest, without --recall)",
        least=0,
        most=1,
    ),
    _Argument(
        "--queries",
        "DATA",
        "points whose neighbours in DATA are looked for (default: every row of "
        "DATA); --at-most holds for the distances to these neighbours too",
    ),
    _MEMORY,
)
_PLAN = (
    _Argument("maps", "MAP", f"maps to plan for: {_MAP}", nargs="*"),
    *_DATA,
    _choice(
        "--orientation",
        "rows columns",
        "what one output coordinate of a square matrix is: a row or a column",
    ),
    _whole("-n --n-neighbors", "N", "neighbours to find (default 10)", default=10),
    _Argument(
        "--queries",
        "DATA",
        "queries that the map has not seen, for the number that suffices for a new one",
    ),
    _choice(
        "--metric",
        "euclidean cosine inner_product",
        "how near full vectors are (default euclidean)",
        default="euclidean",
    ),
    _choice(
        "--score",
        "euclidean cosine inner_product",
        "how near reduced vectors are (default: as --metric)",
    ),
    _number(
        "--confidence",
        "P",
        "probability with which a new query finds them (default 0.95)",
        default=0.95,
    ),
    _number(
        "--share",
        "S",
        "share of the neighbours that must be among the candidates (default 1)",
        default=1.0,
    ),
    _flag("--queries-only", "do not count for every row of DATA"),
    _whole(
        "--at-most",
        "M",
        "exit 1 if a row or a new query needs more candidates; a choice takes no more",
    ),
    _number(
        "--recall",
        "R",
        "choose the cheapest reduced vectors that find this share on average: methods, "
        "dimensions, scores and number formats are tried; with MAP only these maps",
    ),
    _dimensions("dimensions to try in a choice (default: three sizes)", nargs="+"),
    _time_limit("for each single fit of a choice"),
    _seed(),
    _Argument("--plot", "FILE", "file for a plot of a choice (.png, .svg or .pdf)"),
    *_output("file for the matrix of a choice"),
)
_EXPORT = (
    _MODEL,
    _choice(
        "--to",
        " ".join(EXPORTS),
        "the other system; pgvector and halfvec write SQL for pgvector, postgres "
        "SQL for plain arrays, sentence-transformers a folder for Dense.load",
        required=True,
    ),
    *_output("output file (default: name of the model, other extension)"),
    _Argument(
        "--name",
        None,
        "name of the SQL function (default isoproj_project)",
        default="isoproj_project",
    ),
)
_COMPARE = (
    *_DATA,
    _dimensions("numbers of dimensions to compare at", nargs="+", required=True),
    _Argument(
        "--methods",
        "NAME",
        f"{METHODS} (default: minimax, dual_ascent, sdp+dr, sdp+rr, sap, fair_pca, "
        "pca and random)",
        choices=METHODS.split(),
        nargs="+",
    ),
    _whole(
        "--seeds",
        "SEED",
        "seeds of random starts and draws, one fit for each (default 0)",
        least=0,
        nargs="+",
        default=[0],
    ),
    _time_limit("for each single fit"),
    _choice(
        "--metric",
        "contracted distortion stretch isometry mean recall seconds",
        "the number in the table (default contracted: loss of the worst pair, after "
        "the map is scaled so that no pair gains); distortion and stretch are the "
        "largest loss and gain as the map is, isometry the larger of the two after "
        "the best scaling, mean the mean loss, recall the share of the ten nearest "
        "that stay so",
        default="contracted",
    ),
    _maps("the methods"),
    *_output("file for the records, as JSON lines"),
    _Argument("--plot", "FILE", "file for a plot: .png, .svg or .pdf"),
)
_CURVE = (
    *_DATA,
    _Either(
        _dimensions("numbers of dimensions (default: 1 to --max-k)", nargs="+"),
        _whole("--max-k", "K", "largest k (default 40)", default=40),
    ),
    _number(
        "--targets",
        "LOSS",
        "print which k suffices for these losses of the worst pair, as shares, and "
        "which is too small",
        least=0,
        most=1,
        nargs="+",
        default=[],
    ),
    _time_limit("stop after this time with the results so far"),
    *_tracing(1e-2),
)
_FRONTIER = (
    *_DATA,
    _dimensions("number of dimensions", required=True),
    _whole("--n-points", "N", "number of caps (default 7)", default=7),
    _choice(
        "--objective",
        "variance distortion",
        "what to keep: variance (default), or mean squared length",
        default="variance",
    ),
    _time_limit("stop after this time with the best certified projections so far"),
    *_tracing(1e-3),
)
_REPORT = (
    _MODEL,
    *_DATA,
    *_output("file for the report: .html, .md or .json", required=True),
    _Argument("--heldout", "DATA", "points outside the fit to measure as well"),
    _Argument(
        "--labels",
        "FILE",
        "a text file with a line for every point, shown with the worst pairs",
    ),
    _Argument(
        "--image-shape",
        "HxW",
        "height and width if points are images; square images are recognised",
    ),
    _whole(
        "--frontier",
        "N",
        "add the share kept under N other caps; takes as long as isoproj frontier",
    ),
    _maps("the model"),
    *_NEIGHBORS,
    _whole(
        "--max-pairs",
        "N",
        "if there are more pairs, measure a sample of rows, which the report says "
        "(default 20,000,000)",
        default=20_000_000,
    ),
)
VERBS = {
    "fit": _Verb(
        "find the projection whose worst pair loses least, and certify it",
        "isoproj fit embeddings.npy -k 64 -o model.isoproj",
        _FIT,
    ),
    "transform": _Verb(
        "project points with a model",
        "isoproj transform model.isoproj embeddings.npy -o reduced.npy",
        _TRANSFORM,
    ),
    "audit": _Verb(
        "measure what any linear map does to all pairs, exactly",
        "isoproj audit first:256 embeddings.npy --at-most 0.6 --recall-at-least 0.9",
        _AUDIT,
    ),
    "plan": _Verb(
        "count how many candidates a search by reduced vectors must fetch",
        "isoproj plan model.isoproj embeddings.npy --queries queries.npy",
        _PLAN,
    ),
    "verify": _Verb(
        "recompute every claim of a model from the data",
        "isoproj verify model.isoproj embeddings.npy",
        (_MODEL, *_DATA, _MEMORY),
    ),
    "info": _Verb(
        "show what is in a data or model file",
        "isoproj info model.isoproj",
        (_Argument("file", "FILE", "a model, or data as for fit"),),
    ),
    "export": _Verb(
        "write the projection for another system",
        "isoproj export model.isoproj --to faiss -o model.faiss",
        _EXPORT,
    ),
    "compare": _Verb(
        "fit several methods and measure all of them alike",
        "isoproj compare digits -k 5 10 20 --methods minimax pca random",
        _COMPARE,
    ),
    "curve": _Verb(
        "show the worst pair's loss and its lower bound for many numbers of dimensions",
        "isoproj curve embeddings.npy --max-k 40 --targets 0.2 0.5 --plot curve.png",
        _CURVE,
    ),
    "frontier": _Verb(
        "show the variance kept for several caps on the worst pair",
        "isoproj frontier embeddings.npy -k 20 --plot frontier.png",
        _FRONTIER,
    ),
    "report": _Verb(
        "write a report about a model and its data",
        "isoproj report model.isoproj embeddings.npy -o report.html",
        _REPORT,
    ),
    "demo": _Verb(
        "fit, certify and compare on a data set that ships with scikit-learn",
        "isoproj demo -k 10",
        (_dimensions("number of dimensions to keep (default 10)", default=10),),
    ),
}
