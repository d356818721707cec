"""The methods that the paper compares with, and others, as transformers.

Each finds its map in its own way; the same exact scan measures all of them.
"""

from __future__ import annotations

from isoproj.baselines.adagio import Adagio
from isoproj.baselines.dual_ascent import DualAscent
from isoproj.baselines.fair_pca import FairPCA
from isoproj.baselines.fro_max import FroMax
from isoproj.baselines.nile_pro import NILEPro
from isoproj.baselines.numax import NuMax
from isoproj.baselines.pca import PCAProjection
from isoproj.baselines.random import RandomProjection
from isoproj.baselines.sdp import SDPProjection
from isoproj.baselines.secant_avoidance import SecantAvoidance
from isoproj.baselines.sequential_fair_pca import SequentialFairPCA
from isoproj.baselines.stable_pca import StablePCA

__all__ = [
    "Adagio",
    "DualAscent",
    "FairPCA",
    "FroMax",
    "NILEPro",
    "NuMax",
    "PCAProjection",
    "RandomProjection",
    "SDPProjection",
    "SecantAvoidance",
    "SequentialFairPCA",
    "StablePCA",
]


def __dir__() -> list[str]:
    return __all__
