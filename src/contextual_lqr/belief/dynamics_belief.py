"""What is believed about one nonlinear machine: x' = Θ φ(context, x, u) + w.

Θ (d, p), of the machine itself: mean `mean`, and for each of its rows a covariance (p, p)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.belief.machine import MachineBelief, as_system, certainty_facts
from contextual_lqr.checks import as_covariance, as_numbers, require
from contextual_lqr.context import Dynamics, FeatureDynamics
from contextual_lqr.errors import InputError
from contextual_lqr.lqr.problem import LinearSystem
from contextual_lqr.lqr.time_varying import TimeVaryingSystem


@dataclass(frozen=True, eq=False, repr=False)
class DynamicsBelief(MachineBelief):
    """What is believed about one nonlinear machine, or about a batch of them.

    Attributes
    ----------
    mean
        The expected Θ of this machine, (..., d, p).
    covariances
        The covariance of each row of it, (..., d, p, p); zero where it is known.
    noise, degrees, identified
        As of `MachineBelief`.
    dynamics
        The features.
    context
        The machine's context; of a batch, a list of them.

    Examples
    --------
    >>> tank = clqr.FeatureDynamics(
    ...     ["level", "sqrt(level)/area", "valve/area"], states=["level"], inputs=["valve"]
    ... )
    >>> level, valve = np.array([4.0, 3.4, 3.1, 2.9]), np.array([0.0, 0.3, 0.4])
    >>> decoder = clqr.Decoder(tank, noise_level=0.01)
    >>> decoder.update({"area": 2.0}, clqr.Trajectory(level[:, None], valve[:, None]))
    >>> belief = decoder.machine({"area": 3.0})
    >>> belief.step([[4.0], [3.0]], [0.1]).shape, belief.draw(5, np.random.default_rng(0)).shape
    ((2, 1), (5, 1, 3))
    """

    dynamics: Dynamics | None = None
    context: Any = None

    @classmethod
    def of(cls, found: MachineBelief, dynamics: Dynamics, context: Any) -> DynamicsBelief:
        """A belief in the space of features, with these."""
        parts = (found.mean, found.covariances, found.noise, found.degrees, found.identified)
        return cls(*parts, dynamics=dynamics, context=context)

    @classmethod
    def known(
        cls, dynamics: Dynamics, context: Any, theta: ArrayLike, noise: ArrayLike | None = None
    ) -> DynamicsBelief:
        """A machine whose Θ is known, (..., d, p), and the covariance (d, d) of its noise.

        Parameters
        ----------
        dynamics : Dynamics
            The features.
        context
            The machine's context; of a batch, a list of them.
        theta : array_like, (d, p) or (n, d, p)
            Its Θ; of a batch, one for each.
        noise : array_like, (d, d), optional
            The covariance of a step's noise; zero by default.

        Returns
        -------
        DynamicsBelief
            With covariances of zero.
        """
        d = len(dynamics.state_names)
        M = as_numbers("theta", theta, "(..., d, p)", 2)
        p = dynamics.shape[0] if dynamics.shape is not None else M.shape[-1]
        require(
            M.shape[-2:] == (d, p) and M.ndim <= 3,
            f"theta must have shape ({d}, {p}), or one more axis, not {M.shape}",
        )
        require(
            M.ndim == 2 or (isinstance(context, Sequence) and len(context) == len(M)),
            "a batch has a list of contexts, as long as theta",
        )
        W = np.zeros((d, d)) if noise is None else as_covariance("noise", noise, d)
        certain = np.zeros((*M.shape, p)), W, np.full(d, np.inf)
        return cls(M, *certain, dynamics=dynamics, context=context)

    def __getitem__(self, member: int | slice | Array) -> DynamicsBelief:
        """One machine of the batch, or some of them."""
        some = super().__getitem__(member)
        assert isinstance(some, DynamicsBelief)
        return replace(some, context=self.context[member])

    def features(self, states: ArrayLike, inputs: ArrayLike) -> Float[Array, "*batch p"]:
        """φ of states (..., d) and inputs (..., m), whose last batch axes are the machines'."""
        return self._each("features", states, inputs, 1)

    def step(self, states: ArrayLike, inputs: ArrayLike) -> Float[Array, "*batch d"]:
        """The expected next states of states (..., d) and inputs (..., m)."""
        phi = self.features(states, inputs)
        return np.asarray((self.mean @ phi[..., None])[..., 0])

    def jacobian(self, states: ArrayLike, inputs: ArrayLike) -> Float[Array, "*batch d n"]:
        """[A, B] of small changes about states and inputs: Θ ∂φ/∂[x; u], (..., d, d+m)."""
        return np.asarray(self.mean @ self._each("jacobian", states, inputs, 2))

    def linearise(self, states: ArrayLike, inputs: ArrayLike) -> TimeVaryingSystem:
        """Small changes about a path: δx' = A[h] δx + B[h] δu + w at its step h.

        Parameters
        ----------
        states, inputs : array_like, (..., H-1, d) and (..., H-1, m)
            The path of one machine, or many paths of it.

        Returns
        -------
        TimeVaryingSystem
            Of H-1 steps.
        """
        require(self.mean.ndim == 2, "linearise takes one machine, not a batch: choose one")
        M = self.jacobian(states, inputs)
        require(M.ndim > 2, "linearise takes a path: states of shape (H-1, d)")
        return as_system(M, self.noise, varying=True)

    def draw(  # type: ignore[override]
        self, n: int, rng: np.random.Generator, *, stretch: float | Float[Array, " n"] = 1.0
    ) -> Float[Array, "n *batch d p"]:
        """`n` plausible Θ for each of the batch, (n, ..., d, p).

        `stretch` multiplies their deviations from the mean.
        """
        return self._drawn(n, rng, stretch)[0]

    def _drawn(
        self, n: int, rng: np.random.Generator, stretch: float | Float[Array, " n"]
    ) -> tuple[Array, Array]:
        assert self.dynamics is not None
        if not self.dynamics.shared:
            return super()._drawn(n, rng, stretch)
        # One vector of unknowns for all rows: that of the first, in the places of each.
        *batch, d, width = self.mean.shape
        p = width // d
        first = MachineBelief(
            self.mean[..., :1, :p],
            self.covariances[..., :1, :p, :p],
            self.noise[:1, :1],
            self.degrees[..., :1],
        )
        pi, noise = first._drawn(n, rng, stretch)
        theta = np.zeros((n, *batch, d, width))
        for r in range(d):
            theta[..., r, r * p : (r + 1) * p] = pi[..., 0, :]
        scale = noise / np.where(first.noise > 0, first.noise, 1.0)
        return theta, scale * self.noise

    @property
    def system(self) -> LinearSystem:
        """Refused: there is no [A, B]."""
        raise InputError(
            "this machine is nonlinear, and has no A and B; linearise(states, inputs) gives those "
            "about a path"
        )

    def _each(self, what: str, states: ArrayLike, inputs: ArrayLike, own: int) -> Array:
        """Features or derivatives, of which `own` axes are not batch axes."""
        assert self.dynamics is not None
        of = getattr(self.dynamics, what)
        if self.mean.ndim == 2:
            return np.asarray(of(self.context, states, inputs))
        x, u = self.dynamics._moves(states, inputs)
        n = len(self.context)
        require(
            x.ndim > 1 and x.shape[-2] in (1, n),
            f"states must be (..., {n}, d), one for each machine, not {x.shape}",
        )
        if isinstance(self.dynamics, FeatureDynamics) and self.dynamics.names:
            names = self.dynamics.names
            columns = {k: np.array([one[k] for one in self.context]) for k in names}
            return np.asarray(of(columns, x, u))
        x, u = (np.broadcast_to(a, (*a.shape[:-2], n, a.shape[-1])) for a in (x, u))
        found = [of(one, x[..., i, :], u[..., i, :]) for i, one in enumerate(self.context)]
        return np.stack(found, -1 - own)

    def _facts(self) -> dict[str, object]:
        *batch, d, p = self.mean.shape
        variances = np.einsum("...ii->...i", self.covariances)
        return {"states": d, "features": p, **certainty_facts(self, variances, batch)}
