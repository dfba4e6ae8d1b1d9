"""How heavy the tails of machines' deviations are: a Student distribution, as a mix of Gaussians.

With M = I + R T Rᵀ / w, as `deviations.py` has it, for a weight w ~ Γ(ν/2, ν/2) of each machine.
"""

from __future__ import annotations

import numpy as np
from numpy import ndarray as Array

# The weights of the Student distribution are integrated over these; its degrees are one of those.
_NODES = np.exp2(np.concatenate([np.arange(3.0, -5, -1), np.arange(-6.0, -32, -2)]))
_DEGREES = (3.0, 4.0, 6.0, 10.0)
_HEAVIER = 6.0  # by how much of 2 log L a Student must do better than a Gaussian


def spectra(root: Array, f: Array) -> tuple[Array, Array]:
    """M = P (1 + λ) Pᵀ for M = I + root rootᵀ: λ (N, q), and Pᵀf."""
    lam, P = np.linalg.eigh(root @ root.transpose(0, 2, 1))
    return np.maximum(lam, 0), np.einsum("nij,ni->nj", P, f)


def student(lam: Array, z: Array, degrees: float) -> tuple[Array, Array]:
    """log L of each machine, and E[w], for a weight w ~ Γ(degrees/2, degrees/2)."""
    half = degrees / 2
    spacing = np.gradient(np.log(_NODES)) * -1
    prior = half * (np.log(_NODES) - _NODES) + np.log(spacing)
    prior -= np.log(np.exp(prior).sum())
    logs = np.empty((len(_NODES), len(z)))
    for node, w in enumerate(_NODES):
        size = 1 + lam / w
        logs[node] = prior[node] - (np.log(size) + np.square(z) / size).sum(1) / 2
    most = logs.max(0)
    shares = np.exp(logs - most)
    return most + np.log(shares.sum(0)), (_NODES @ shares) / shares.sum(0)


def heaviness(lam: Array, z: Array) -> tuple[float, float]:
    """The degrees under which the residuals are likeliest, and by what factor T then changes."""
    few = slice(None, None, max(1, len(lam) // 500))
    lam, z = lam[few], z[few]
    factors = np.exp2(np.arange(-4.0, 1.25, 0.5))

    def gaussian(c: float) -> float:
        size = 1 + c * lam
        return float(-(np.log(size) + np.square(z) / size).sum() / 2)

    best = (max(gaussian(c) for c in factors) + _HEAVIER / 2, np.inf, 1.0)
    for degrees in _DEGREES:
        for c in factors:
            value = float(student(c * lam, z, degrees)[0].sum())
            best = max(best, (value, degrees, float(c)))
    return best[1], best[2]
