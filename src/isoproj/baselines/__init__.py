"""The methods that the paper compares with, and others, as transformers.

Each finds its map in its own way; the same exact scan measures all of them.
"""

from __future__ import annotations

from isoproj.baselines.adagio import Adagio as Adagio
from isoproj.baselines.dual_ascent import DualAscent as DualAscent
from isoproj.baselines.fair_pca import FairPCA as FairPCA
from isoproj.baselines.fro_max import FroMax as FroMax
from isoproj.baselines.nile_pro import NILEPro as NILEPro
from isoproj.baselines.numax import NuMax as NuMax
from isoproj.baselines.pca import PCAProjection as PCAProjection
from isoproj.baselines.random import RandomProjection as RandomProjection
from isoproj.baselines.sdp import SDPProjection as SDPProjection
from isoproj.baselines.secant_avoidance import SecantAvoidance as SecantAvoidance
from isoproj.baselines.sequential_fair_pca import SequentialFairPCA as SequentialFairPCA
from isoproj.baselines.stable_pca import StablePCA as StablePCA

# Classes are the methods; the modules around them have small letters.
__all__ = sorted(name for name in globals() if name[0].isupper())


def __dir__() -> list[str]:
    return __all__
