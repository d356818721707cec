"""The parser of the command line; it imports no library, so help appears at once."""

from __future__ import annotations

import argparse
import difflib
import json
import math
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

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


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of a command line, or exit after what asks for no verb."""
    parser = build_parser()
    if not arguments:
        parser.print_help()
        parser.exit()
    options, unknown = parser.parse_known_args(arguments)
    verbs: dict[str, argparse.ArgumentParser] = next(
        action.choices
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    # Imported here so that a verb begins at once.
    if options.completion is not None:
        from isoproj.cli.completion import script

        sys.stdout.write(script(verbs, options.completion))
        parser.exit()
    if options.schema is not None:
        from isoproj.cli.payloads import schema_of

        sys.stdout.write(json.dumps(schema_of(options.schema), indent=2) + "\n")
        parser.exit()
    if options.verb is None:
        parser.error("the following arguments are required: VERB")
    if unknown:
        name = unknown[0].partition("=")[0]
        verb = verbs[options.verb]
        near = difflib.get_close_matches(name, verb._option_string_actions, 1, 0.75)
        hint = f"Did you mean {near[0]}?" if near else f"See {verb.prog} -h."
        what = "an option" if name.startswith("-") else "expected here"
        sys.stderr.write(f"{verb.prog}: {one_line(name)!r} is not {what}. {hint}\n")
        raise SystemExit(2)
    return options


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
    _add_arguments(parser, _PROGRAM)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", parser_class=_Parser)
    for name, text in VERBS.items():
        summary, example, arguments = text.strip().split("\n", 2)
        verb = verbs.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=f"example: {example}\n{_STATUS}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        _add_arguments(verb, f"{arguments}\n{_TALK}")
    return parser


def _add_arguments(parser: argparse.ArgumentParser, text: str) -> None:
    """Add arguments to a parser, from a text such as ``_TALK``.

    A line has the names of an option, or the name of a positional argument, then a word
    for its value (``K...`` for several, ``K*`` for any number) unless it is a flag.
    Marks follow: what the value ``is`` (a kind or a choice), its ``default``, whether
    it is ``required``, and a word that options share of which a user may give
    ``either``. The help is indented below.
    """
    groups: defaultdict[str, argparse._ArgumentGroup]
    groups = defaultdict(parser.add_mutually_exclusive_group)
    for lines in re.split(r"\n+(?=\S)", text.strip()):
        line, _, about = lines.partition("\n")
        words = [word for word in line.split() if "=" not in word]
        marks = dict(word.split("=", 1) for word in line.split() if "=" in word)
        names = [word for word in words if word.startswith("-")] or words[:1]
        value = "".join(words[len(names) :])
        settings: dict[str, Any] = {"help": " ".join(about.split())}
        if value:
            settings["metavar"] = value.rstrip(".*")
        if value.endswith((".", "*")):
            settings["nargs"] = "*" if value.endswith("*") else "+"
        if "is" in marks:
            kind = _KINDS.get(marks["is"])
            settings |= {"type": kind} if kind else {"choices": marks["is"].split("|")}
        elif not value:
            settings["action"] = "store_true"
        if "default" in marks:
            read = settings.get("type", str)
            given = [read(word) for word in marks["default"].split("|") if word]
            settings["default"] = given if "nargs" in settings else given[0]
        if "required" in marks:
            settings["required"] = True
        place = groups[marks["either"]] if "either" in marks else parser
        place.add_argument(*names, **settings)


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


def _shape(text: str) -> tuple[int, int]:
    """Return height and width of a text such as 28x28."""
    sides = re.fullmatch(r"(\d{1,6})[xX](\d{1,6})", text)
    if sides is None:
        msg = f"must look like 28x28; got {text!r}. Height comes first"
        raise argparse.ArgumentTypeError(msg)
    return int(sides[1]), int(sides[2])


def _part(text: str) -> float | int:
    """Return a share or a number of rows, from a text."""
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        msg = f"must be a share or a number of points; got {text!r}"
        raise argparse.ArgumentTypeError(msg) from None


# What the value of an argument may be, other than a text or a choice.
_KINDS: dict[str, Callable[[str], object]] = {
    "count": _number_of(int, 1, math.inf),
    "count-or-zero": _number_of(int, 0, math.inf),
    "count-from-two": _number_of(int, 2, math.inf),
    "positive": _number_of(float, None, math.inf),
    "positive-or-zero": _number_of(float, 0, math.inf),
    "share": _number_of(float, None, 1),
    "share-or-zero": _number_of(float, 0, 1),
    "share-or-count": _part,
    "bytes": _bytes,
    "shape": _shape,
}
_TALK = """
--json
    print the result as JSON (isoproj --schema VERB documents it)
-q --quiet  either=talk
    show no progress and no notes
-v --verbose  either=talk
    show every step and tracebacks
"""
_FORCE = """
--force
    overwrite FILE if it exists
"""
_MODEL = """
model MODEL
    a model file of isoproj fit
"""
_MAP = (
    "a model file; a matrix; a transform or pre-transform index of faiss; an ONNX file "
    "with one linear layer; a folder with a Dense module of sentence-transformers; a "
    "skops pipeline; or first:K for the first K columns"
)
_DATA = f"""
data DATA
    a file ({" ".join(name for name in EXTENSIONS if name != ".isoproj")}; some also
    .gz), FILE:ARRAY, - for a pipe, or a built-in data set: {", ".join(BUILT_IN)}
--array NAME
    which array of a file that holds several
--columns LIST
    which columns: names, numbers from 0, ranges; as in a,b or 0,2:5
--header  is=auto|yes|no  default=auto
    whether the first line of a text file names the columns (default auto)
"""
_MEMORY = """
--memory-limit BYTES  is=bytes
    memory for arrays as large as the data, as in 500M or 8G (default 2G); larger arrays
    lie in scratch files under TMPDIR
"""
_SEED = """
{names} SEED  is=count-or-zero  default=0
    seed of random starts and samples (default 0); the same seed gives the same result
"""
_ORIENTATION = """
--orientation  is=rows|columns
    of a square matrix: whether its rows or its columns give the output coordinates
"""
_PAIRS = """
--pairs WHICH
    which pairs count: all; directions (every row is a direction); sample (random pairs,
    if all are too many); neighbors, or approximate-neighbors by pynndescent; labels
    (pairs of different classes) or within-labels; queries (of a query and another row:
    the labels are 1 and 0); or a file with two columns of row numbers
--neighbors N  is=count
    neighbors of each point with --pairs neighbors (default 10)
--min-distance D  is=positive-or-zero
    leave out pairs closer than this
--include-norms
    count every row as a direction too, which preserves inner products
--labels FILE
    a text file with the class of every point, one a line, for --pairs labels
"""
_NEIGHBORS = """
--recall K...  is=count
    share of the K nearest rows that stay among the K nearest, exact
--metric  is=euclidean|cosine|inner_product  default=euclidean
    how nearness is measured for recall (default euclidean)
"""
# What ``curve`` and ``frontier`` share.
_TRACING = f"""
{_PAIRS}
--tol GAP  is=positive  default=0.01
    stop each result when its gap is at most this share of its bound (default 0.01)
{_SEED.format(names="--seed")}
--plot FILE
    file for the plot: .png, .svg or .pdf
{_FORCE}
"""
# Of every verb: what it does, an example, and its arguments.
VERBS = {
    "fit": f"""
find the projection whose worst pair loses least, and certify it
isoproj fit embeddings.npy -k 64 -o model.isoproj
{_DATA}
-k --n-components K  is=count
    number of dimensions to keep; without it, the fewest that --max-distortion allows
-o --output FILE
    file for the model, by convention *.isoproj
{_FORCE}
--method  is=near-isometric|guaranteed-pca  default=near-isometric
    minimise the loss of the worst pair (default), or keep the most variance under a cap
    on the loss of any pair
--max-distortion D  is=share
    the cap: largest allowed loss of any pair, as a share of squared length
--slack S  is=positive-or-zero
    guaranteed-pca: without --max-distortion the cap is 1 + S times the least loss found
    (default 0.05)
--objective  is=variance|distortion
    guaranteed-pca: keep the most variance (default), or lose the least on average
--solver  is=minimax|dual_ascent
    near-isometric: minimax finds the least loss of the worst pair (default);
    dual_ascent is the algorithm of the paper
{_PAIRS}
--nested K...  is=count
    make the first K dimensions a good projection too, for each K given; each has its
    own certificate
--nested-weights W...  is=positive
    how much each K of --nested and, last, -k matters (default: all the same)
--heldout SHARE  is=share-or-count
    leave this share or number of points out of the fit and measure the losses of
    their pairs; the certificate is about the other points
--scale  is=balanced
    scale projected points so that the largest gain of squared length equals the largest
    loss
--tol GAP  is=positive
    stop when the loss is at most this share above the lower bound (default 0.01: 1%%)
--max-iter N  is=count
    largest number of iterations
--time-limit SECONDS  is=positive
    stop after this time with the best certified result so far
--checkpoint FILE
    near-isometric: keep the state here after every round; a fit that was killed goes on
    from there
--estimate
    say how long the fit would take and what would be faster, and stop
{_SEED.format(names="--seed --random-state")}
{_MEMORY}
""",
    "transform": f"""
project points with a model
isoproj transform model.isoproj embeddings.npy -o reduced.npy
{_MODEL}
{_DATA}
-o --output FILE  required=yes
    file for the projected points, in the format of its extension; - writes .npy to
    standard output
{_FORCE}
{_MEMORY}
""",
    "audit": f"""
measure what any linear map does to all pairs, exactly
isoproj audit first:256 embeddings.npy --at-most 0.6 --recall-at-least 0.9
model MAP
    {_MAP}
{_DATA}
{_ORIENTATION}
{_PAIRS}
--worst N  is=count  default=10
    number of worst pairs to list (default 10)
--at-most --max-distortion D  is=share-or-zero
    exit 1 if the worst pair loses more than this share
{_NEIGHBORS}
--recall-at-least R  is=share-or-zero
    exit 1 if a recall is lower (of the 10 nearest, without --recall)
--queries DATA
    points whose neighbours in DATA are looked for (default: every row of DATA);
    --at-most holds for the distances to these neighbours too
{_MEMORY}
""",
    "plan": f"""
count how many candidates a search by reduced vectors must fetch
isoproj plan model.isoproj embeddings.npy --queries queries.npy
maps MAP*
    maps to plan for: {_MAP}
{_DATA}
{_ORIENTATION}
-n --n-neighbors N  is=count  default=10
    neighbours to find (default 10)
--queries DATA
    queries that the map has not seen, for the number that suffices for a new one
--metric  is=euclidean|cosine|inner_product  default=euclidean
    how nearness of full vectors is measured (default euclidean)
--score  is=euclidean|cosine|inner_product
    how nearness of reduced vectors is measured (default: as --metric)
--confidence P  is=positive  default=0.95
    probability with which a new query finds them (default 0.95)
--share S  is=positive  default=1
    share of the neighbours that must be among the candidates (default 1)
--queries-only
    count for the queries alone, which is faster than for every row of DATA too
--at-most M  is=count
    exit 1 if a row or a new query needs more candidates; with --recall, choose among
    what needs no more
--recall R  is=share
    choose the cheapest reduced vectors that find this share on average: methods,
    dimensions, scores and number formats are tried; with MAP only these maps
-k --n-components K...  is=count
    with --recall: numbers of dimensions to try (default: three)
--time-limit SECONDS  is=positive
    with --recall: seconds for each fit
{_SEED.format(names="--seed")}
--plot FILE
    with --recall: file for a plot of what was tried: .png, .svg or .pdf
-o --output FILE
    with --recall: file for the matrix that was chosen
{_FORCE}
""",
    "verify": f"""
recompute every claim of a model from the data
isoproj verify model.isoproj embeddings.npy
{_MODEL}
{_DATA}
{_MEMORY}
""",
    "info": """
show what is in a data or model file
isoproj info model.isoproj
file FILE
    a model, or data as for fit
""",
    "export": f"""
write the projection for another system
isoproj export model.isoproj --to faiss -o model.faiss
{_MODEL}
--to  is={"|".join(EXPORTS)}  required=yes
    the other system; pgvector and halfvec write SQL for pgvector, postgres SQL for
    plain arrays, sentence-transformers a folder for Dense.load
-o --output FILE
    output file (default: name of the model, other extension)
{_FORCE}
--name NAME  default=isoproj_project
    name of the SQL function (default isoproj_project)
""",
    "compare": f"""
fit several methods and measure all of them in the same way
isoproj compare digits -k 5 10 20 --methods minimax pca random
{_DATA}
-k --n-components K...  is=count  required=yes
    numbers of dimensions to compare at
--methods NAME...  is={METHODS.replace(" ", "|")}
    {METHODS} (default: minimax, dual_ascent, sdp+dr, sdp+rr, sap, fair_pca, pca and
    random)
--seeds SEED...  is=count-or-zero  default=0
    seeds of random starts and draws, one fit for each (default 0)
--time-limit SECONDS  is=positive
    seconds for each fit
--metric  is=contracted|distortion|stretch|isometry|mean|recall|seconds  \
default=contracted
    the number in the table (default contracted: loss of the worst pair, after the map
    is scaled so that no pair gains); distortion and stretch are the largest loss and
    gain as the map is, isometry the larger of the two after the best scaling, mean the
    mean loss, recall the share of the ten nearest that stay so
--maps MAP...  default=
    maps to measure beside the methods: {_MAP}
-o --output FILE
    file for the records, as JSON lines
{_FORCE}
--plot FILE
    file for a plot: .png, .svg or .pdf
""",
    "curve": f"""
show the worst pair's loss and its lower bound for many numbers of dimensions
isoproj curve embeddings.npy --max-k 40 --targets 0.2 0.5 --plot curve.png
{_DATA}
-k --n-components K...  is=count  either=dimensions
    numbers of dimensions (default: 1 to --max-k)
--max-k K  is=count  default=40  either=dimensions
    largest k (default 40)
--targets LOSS...  is=share-or-zero  default=
    for each of these losses of the worst pair, between 0 and 1, print how many
    dimensions suffice and how many are too few
--time-limit SECONDS  is=positive
    stop after this time with the results so far
{_TRACING}
""",
    "frontier": f"""
show the variance kept for several caps on the worst pair
isoproj frontier embeddings.npy -k 20 --plot frontier.png
{_DATA}
-k --n-components K  is=count  required=yes
    number of dimensions
--n-points N  is=count  default=7
    number of caps (default 7)
--objective  is=variance|distortion  default=variance
    what to keep: variance (default), or mean squared length
--time-limit SECONDS  is=positive
    stop after this time with the best certified projections so far
{_TRACING}
""",
    "report": f"""
write a report about a model and its data
isoproj report model.isoproj embeddings.npy -o report.html
{_MODEL}
{_DATA}
-o --output FILE  required=yes
    file for the report: .html, .md or .json
{_FORCE}
--heldout DATA
    points outside the fit to measure as well
--labels FILE
    a text file with a line for every point, shown with the worst pairs
--image-shape HxW  is=shape
    height and width if points are images; square images are recognised
--frontier N  is=count-from-two
    add the variance kept under N other caps; takes as long as isoproj frontier
--maps MAP...  default=
    maps to measure beside the model: {_MAP}
{_NEIGHBORS}
--max-pairs N  is=count  default=20000000
    if there are more pairs, measure a sample of rows, which the report says (default
    20,000,000)
""",
    "demo": """
fit, certify and compare on a data set that ships with scikit-learn
isoproj demo -k 10
-k --n-components K  is=count  default=10
    number of dimensions to keep (default 10)
""",
}
# Of the program itself.
_PROGRAM = f"""
--completion  is=bash|zsh|fish
    print a script that lets a shell complete verbs and options
--schema  is={"|".join(VERBS)}
    print the JSON schema of what VERB --json prints
"""
