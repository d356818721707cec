"""Pictures of distances kept and lost; matplotlib Axes in, matplotlib Axes out.

Functions draw and return the Axes; the ``Display`` classes follow scikit-learn's
convention: ``from_estimator`` measures, ``plot`` draws, the numbers stay at hand.
"""

from __future__ import annotations

from isoproj.plot.bounds import (
    ConvergenceDisplay,
    DistortionCurveDisplay,
    convergence,
    distortion_curve,
    frontier,
)
from isoproj.plot.distances import (
    DistortionHistogramDisplay,
    ShepardDisplay,
    distortion_histogram,
    search_plan,
    shepard,
)
from isoproj.plot.images import worst_pairs

__all__ = [
    "ConvergenceDisplay",
    "DistortionCurveDisplay",
    "DistortionHistogramDisplay",
    "ShepardDisplay",
    "convergence",
    "distortion_curve",
    "distortion_histogram",
    "frontier",
    "search_plan",
    "shepard",
    "worst_pairs",
]


def __dir__() -> list[str]:
    return __all__
