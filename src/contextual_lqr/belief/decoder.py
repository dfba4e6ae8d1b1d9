"""The decoder: what a fleet has taught about Θ in [A, B] = Θ G(context).

Every step of every episode is one row of a linear regression, x' = Θ z + w with z = G [x; u]. All
that the rows say is held in one triangular factor, found by QR and never by forming zzᵀ:

    QR of the rows [z x'] = [ D  E ]    D (p, p), E (p, d), T (d, d); D and T upper triangular
                            [ 0  T ]

    data alone          DᵀD = Σ zzᵀ,   TᵀT = Σ of the squared residuals of least squares
    with the prior      QR of [ D   E ]  =  [ R  RΘ̂ᵀ ],   V = RᵀR = λI + Σ zzᵀ
                              [ √λI 0 ]     [ 0   ·  ]

The prior joins only when an estimate is asked for. So the factors of two sites merge by QR of the
one on top of the other, and λ is counted once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.belief.decoder_file import SavedDecoder
from contextual_lqr.belief.decoder_prior import has_prior_sizes, prior_of, shrunk_about, unknowns_of
from contextual_lqr.belief.dynamics_belief import DynamicsBelief
from contextual_lqr.belief.evidence.episodes import machine_labels
from contextual_lqr.belief.evidence.fleet_data import FleetData
from contextual_lqr.belief.machine import MachineBelief, as_system, stacked
from contextual_lqr.belief.machines.changing_machines import ChangingMachines
from contextual_lqr.belief.machines.machine_store import MachineStore
from contextual_lqr.belief.machines.population import Population
from contextual_lqr.belief.posterior import Posterior
from contextual_lqr.belief.prior import Prior
from contextual_lqr.belief.regression import Regression, row_noise
from contextual_lqr.belief.schedule import ScheduleBelief, schedule_belief
from contextual_lqr.belief.shrinkage import Shrunk
from contextual_lqr.context import Dynamics, Schedule
from contextual_lqr.context.dynamics import require_linear, used_entries
from contextual_lqr.context.variables import one_by_one
from contextual_lqr.display import Displayed
from contextual_lqr.errors import InputError
from contextual_lqr.lqr.problem import LinearSystem


class Decoder(FleetData, SavedDecoder, Displayed):
    """A belief about Θ, (d, p), kept as square-root statistics of ridge regression.

    Parameters
    ----------
    context_map : ContextMap
        The known map from contexts to G.
    regularisation : float, optional
        The λ of V = λI + Σ zzᵀ, which says how large entries of Θ are. By default V = Λ + Σ zzᵀ
        with Λ next to nothing, in proportion to the data: what is learnt is the same in any units.
    noise_level : array_like, () or (d,), optional
        The rough standard deviation of a step's noise; √λ if only that is given, else a hundredth
        of the states. Zero where a state is exact. A step so large that rounding swamps such noise
        teaches nothing, and is counted in `ignored_rows` instead.
    known : mapping from int to array_like, (p,), optional
        The rows of Θ, by the index of their state, that are given and need not be learnt.
    deviations : "estimated", array_like (d, d+m, d+m), or None
        How machines deviate from the law [A, B] = Θ G. "estimated": what each machine has shown is
        kept apart, and the covariances S_r of the deviations are estimated from it. An array gives
        them. None says that machines do not deviate, as in the paper, and keeps no machines apart.
    prior : Prior, optional
        What is known about Θ before any data, in place of λ: the estimate shrinks towards it, and
        while there are no data the belief is the prior.
    scales : array_like, (d+m,), optional
        The typical sizes of states and inputs, in place of λ: a prior around 0 in natural sizes.
        The entries of a row of Θ are of the order that moves its state by its own size.

    Attributes
    ----------
    episodes, rows : int
        How much was learnt from.
    ignored_rows : int
        How many steps were too large to teach anything.
    repeats : int
        How many episodes, or tables of rows, had been learnt before, and were skipped.

    Raises
    ------
    InputError
        If an argument is of the wrong kind, shape or sign.

    Examples
    --------
    >>> decoder = clqr.Decoder(clqr.FeatureContext(["1", "1/mass"]), 1e-4)
    >>> decoder.update({"mass": 2.0}, clqr.Trajectory([[1.0], [0.8], [0.7]], [[-0.2], [-0.1]]))
    >>> decoder
    <Decoder: states 1, inputs 1, Θ 1 x 4, episodes 1, rows 2, machines 1, deviations estimated>
    >>> decoder.machine({"mass": 3.0})
    <MachineBelief: states 1, inputs 1, largest deviation 0.387, identified no>
    """

    @property
    def regression(self) -> Regression:
        """The regression of Θ on all rows."""
        if self._regression is not None:
            return self._regression
        if self.context_map.shape is None:
            raise InputError(
                "the size of Θ is not known before the first episode; declare it with "
                "context_map.sized(states, inputs), or bounds within which the map can be tried"
            )
        p, d, _ = self.context_map.shape
        return Regression(p, np.zeros((p + d, p + d)), self.regularisation, self.known)

    @property
    def estimate(self) -> Float[Array, "d p"]:
        """The estimate Θ̂, (d, p): by ridge regression, or with the prior if there is one."""
        return self.regression.estimate if self.prior is None else self.shrunk.theta

    @property
    def prior(self) -> Prior | None:
        """What was known before any data; None if that is a ridge."""
        if "prior" not in self.kept:
            self.kept["prior"] = prior_of(self)
        return cast("Prior | None", self.kept["prior"])

    @property
    def shrunk(self) -> Shrunk:
        """The regression of Θ about the prior, row by row."""
        if "shrunk" not in self.kept:
            self.kept["shrunk"] = shrunk_about(self, self.prior)
        return cast(Shrunk, self.kept["shrunk"])

    @property
    def factor(self) -> Float[Array, "p p"]:
        """The upper-triangular R with V = RᵀR = λI + Σ zzᵀ, its diagonal positive."""
        return self.regression.factor

    @property
    def data_factor(self) -> Float[Array, "p p"]:
        """The upper-triangular D with DᵀD = Σ zzᵀ: what the logs alone say, without the prior."""
        regression = self.regression
        return regression.data[: regression.p, : regression.p].copy()

    @property
    def log_det(self) -> float:
        """The logarithm of det V."""
        return float(2 * np.log(np.diagonal(self.factor)).sum())

    @property
    def noise_level(self) -> float | Float[Array, " d"]:
        """The rough standard deviation of a step's noise: as given, or a hundredth of the states'.

        It counts as one observation.
        """
        if self.given_noise_level is not None:
            return self.given_noise_level
        if self.scales is not None and not self.rows:
            return 0.01 * self.scales[: self.regression.d]
        return 0.01 * self.regression.sizes

    @property
    def noise_estimate(self) -> Float[Array, "d d"]:
        """The covariance of a step's noise, from the residuals of least squares.

        Until there are more rows than unknowns, it is noise_level² I, or what the prior leaves.
        """
        used, regression = used_entries(self.context_map), self.regression
        found = regression.noise() if used is None else row_noise(regression, self.estimate, used)
        if found is None and self.prior is not None:
            found = self.posterior.noise
        if found is None:
            found = np.diag(np.broadcast_to(np.square(self.noise_level), (self.regression.d,)))
        return found

    @property
    def penalised_residuals(self) -> Float[Array, " d"]:
        """For each coordinate, Σ (x' - Θ̂z)² + λ‖Θ̂'s row‖²: what ridge regression minimises.

        For a known row, Σ (x' - Θz)².
        """
        return self.regression.penalised_residuals

    @property
    def posterior(self) -> Posterior:
        """The posterior of Θ and of the noise."""
        if "posterior" not in self.kept:
            self.kept["posterior"] = Posterior.of(self)
        return cast(Posterior, self.kept["posterior"])

    def law(self, G: Float[Array, "*batch p y"]) -> MachineBelief:
        """What the law says about machines with these context matrices, without deviations.

        Parameters
        ----------
        G : array, (..., p, d+m)
            Their context matrices.

        Returns
        -------
        MachineBelief
            One, or a batch.
        """
        if has_prior_sizes(self):
            return self.posterior.machine(G)
        flat = G.reshape(-1, *G.shape[-2:])
        return stacked([self.posterior_at(one).machine(one) for one in flat], G.shape[:-2])

    def posterior_at(self, G: Float[Array, "p y"]) -> Posterior:
        """The posterior, if need be by the one machine that says how large features are."""
        if has_prior_sizes(self):
            return self.posterior
        return Posterior.about(shrunk_about(self, prior_of(self, G)), self, False)

    def machine(self, context: Any, machine: str | None = None) -> MachineBelief:
        """What is believed about the machine with this context.

        Parameters
        ----------
        context
            The machine's context.
        machine : str, optional
            The label of a machine that has data of its own: the posterior is then given these data.

        Returns
        -------
        MachineBelief
            The mean of [A, B], and the covariance of each of its rows; of `Dynamics`, a
            `DynamicsBelief`: those of its Θ.

        Raises
        ------
        InputError
            If there are no data for this machine, or machines are not kept apart.
        """
        G = self.context_map.matrix(context)
        found = self._belief(G, self.context_map.keys([context], G[None]), [machine])
        if isinstance(self.context_map, Dynamics):
            return DynamicsBelief.of(found, self.context_map, context)
        return found

    def machine_at(self, G: Float[Array, "p y"], key: Array, label: str | None) -> MachineBelief:
        """The same of its context matrix; a label without data is that of a machine never seen."""
        if label is None or self.store is None or self.store.place(label, key) is None:
            label = None
        return self._belief(G, key[None], [label])

    def machines(
        self,
        contexts: Sequence[Any] | Mapping[str, Any],
        machine: str | Sequence[str | None] | None = None,
    ) -> MachineBelief:
        """What is believed about the machines with these contexts, as one batch.

        Parameters
        ----------
        contexts
            A sequence of contexts, or a mapping from names to arrays.
        machine : str or sequence of str or None, optional
            The label of each, None for one that was never seen.

        Returns
        -------
        MachineBelief
            One batch, in the order of the contexts.
        """
        G = self.context_map.matrices(contexts)
        keys = self.context_map.keys(contexts, G)
        found = self._belief(G, keys, machine_labels(machine, len(G), "contexts"))
        if isinstance(self.context_map, Dynamics):
            return DynamicsBelief.of(found, self.context_map, one_by_one(contexts))
        return found

    def predict(
        self, context: Any, states: ArrayLike, inputs: ArrayLike, machine: str | None = None
    ) -> Float[Array, "*batch d"]:
        """Where the machine with this context is expected to be after one step.

        Parameters
        ----------
        context
            The machine's context.
        states, inputs : array_like, (..., d) and (..., m)
            Where it is, and what is played. Leading axes are batch axes.
        machine : str, optional
            The label of a machine that has data of its own.

        Returns
        -------
        array, (..., d)
            The expected next states.
        """
        return self.machine(context, machine).step(states, inputs)

    def schedule(self, contexts: Schedule | Sequence[Any] | Mapping[str, Any]) -> ScheduleBelief:
        """What is believed about an unseen machine whose context changes during an episode.

        Parameters
        ----------
        contexts : Schedule
            The context of each step, or what a `Schedule` is made of.

        Returns
        -------
        ScheduleBelief
            Its `system` is a `TimeVaryingSystem`, and so are its draws: each is one law and one
            machine for all steps.
        """
        require_linear(self.context_map, "schedule")
        plan = contexts if isinstance(contexts, Schedule) else Schedule(contexts)
        return schedule_belief(self, self.context_map.matrices(plan.contexts))

    def _belief(
        self, G: Float[Array, "*batch p y"], keys: Array, labels: Sequence[str | None]
    ) -> MachineBelief:
        own = self.places(keys, labels)
        law, population = self.law(G), self.population
        return law if population is None else population.machine(law, G, own)

    def places(self, keys: Array, labels: Sequence[str | None]) -> list[int | None]:
        """Where machines with data of their own stand among all, by what is kept of contexts."""
        return [
            None if label is None else self._place(label, key)
            for label, key in zip(labels, keys, strict=True)
        ]

    def _place(self, label: str, key: Array) -> int:
        if self._machines is None:
            raise InputError("this decoder keeps no machines apart: deviations is None")
        return self._machines.place(label, key)

    @property
    def deviations(self) -> Float[Array, "d y y"]:
        """S_r: the covariance of the machines' deviations from the law, for each row of [A, B]."""
        if self.population is not None:
            return self.population.deviations
        if self._machines is not None and self._machines.given is not None:
            return self._machines.given
        y = self.context_map.matrix_width
        return np.zeros((self.regression.d, y, y))

    @property
    def population(self) -> Population | None:
        """The fleet as machines that deviate from its law; None if they are not kept apart."""
        if self._machines is None:
            return None
        return self._machines.population(
            self.context_map,
            self.known,
            self.regression.prior,
            self.prior,
            self.given_prior is not None,
            unknowns_of(self),
        )

    @property
    def store(self) -> MachineStore | None:
        """What each machine has shown, kept apart; None if there is nothing, or it is not kept."""
        return None if self._machines is None else self._machines.store

    @property
    def changing(self) -> ChangingMachines | None:
        """The same of machines whose context changes during episodes."""
        return None if self._machines is None else self._machines.changing

    def system(self, context: Any) -> LinearSystem:
        """The estimated machine with this context: [A, B] = Θ̂ G(context)."""
        require_linear(self.context_map, "system")
        return self._decode(self.context_map.matrix(context))

    def systems(self, contexts: Sequence[Any] | Mapping[str, Any]) -> LinearSystem:
        """The machines with these contexts, as one batch."""
        require_linear(self.context_map, "systems")
        return self._decode(self.context_map.matrices(contexts))

    def _decode(self, G: Array) -> LinearSystem:
        M = self.estimate @ G
        if not np.isfinite(M).all():
            raise InputError("the estimate overflows when this context is applied to it")
        return as_system(M, self.noise_estimate)

    def _facts(self) -> dict[str, object]:
        shape = self.context_map.shape
        facts: dict[str, object] = {}
        if shape is not None:
            p, d, m = shape
            facts = {"states": d, "inputs": m, "Θ": f"{d} x {p}"}
        facts |= {"episodes": f"{self.episodes:,}", "rows": f"{self.rows:,}"}
        for name, count in (("ignored rows", self.ignored_rows), ("repeats", self.repeats)):
            if count:
                facts[name] = f"{count:,}"
        machines = self._machines
        if self.given_prior is not None:
            facts["prior"] = "given"
        elif self.scales is not None:
            facts["prior"] = "scales"
        if machines is None:
            return {**facts, "deviations": "none"}
        count = sum(0 if some is None else len(some) for some in (self.store, self.changing))
        facts["machines"] = f"{count:,}"
        return {**facts, "deviations": "estimated" if machines.given is None else "given"}
