"""Algorithm 1 as ask and tell: plan an episode, learn from what was played.

    agent = Agent(context_map, cost, start)
    for every machine:
        plan = agent.ask(context)                  # what to play
        trajectory = ...                           # play it: inputs plan.input(step, state)
        agent.tell(plan, trajectory)               # what came of it

`agent.episode` is the same as a loop over the steps of a real machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.belief.confidence import BetaRule, DeterminantBeta
from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.prior import Prior
from contextual_lqr.checks import as_input_bounds, require, shown
from contextual_lqr.context import ContextMap, Dynamics
from contextual_lqr.display import Displayed
from contextual_lqr.errors import InputError
from contextual_lqr.files import load_arrays, real_path, save_arrays, stamp
from contextual_lqr.lqr.problem import QuadraticCost, Trajectory
from contextual_lqr.lqr.solve import solve
from contextual_lqr.planning import (
    Cautious,
    CertaintyEquivalence,
    PlanningProblem,
    Strategy,
    ThompsonSampling,
)
from contextual_lqr.planning.agent_arguments import as_level, require_planned, require_random
from contextual_lqr.planning.agent_file import FORMAT_VERSION, REMEMBERED, agent_state, restored
from contextual_lqr.planning.episode import Episode, as_state
from contextual_lqr.planning.incumbent import Incumbent, as_incumbent, incumbent_policy
from contextual_lqr.planning.natural_scales import natural_scales
from contextual_lqr.planning.paths.path_strategies import planned_path
from contextual_lqr.planning.plan import Plan, planned
from contextual_lqr.planning.region import Region, as_region


class Output(NamedTuple):
    """The decoders of the Theorem (from the Θ̃ played) and of the Remark (from the estimates)."""

    optimistic: Float[Array, "d p"]
    estimate: Float[Array, "d p"]


class Agent(Displayed):
    """Learns the decoder of a fleet, one episode a machine.

    Parameters
    ----------
    context_map : ContextMap
        The known map from contexts to G, or `Dynamics`, for machines that are not linear.
    cost : QuadraticCost
        The cost of an episode; of dynamics, a `TargetCost` too.
    start : array_like, (d,)
        The state in which episodes start.
    strategy : Strategy, optional
        How to choose what to play; `Cautious()` unless given.
    noise_level : array_like, () or (d,)
        The rough standard deviation of a step's noise, zero where a coordinate is exact.
    regularisation : float, optional
        λ. For the paper's strategies, `SampledOptimism` and `Optimism`, the largest noise level
        squared unless given: entries of Θ of the order of one.
    beta : float or rule, optional
        β; unless given that of the determinant form, with ‖Θ‖ of that order and δ = 0.1.
    seed : int or numpy.random.Generator
        Where the strategy's draws and the dither come from.
    deviations
        As for `Decoder`; without them every machine obeys the law, as in the paper. With them,
        plans and steps are those for the machine itself: what others say, and its own rows.
    input_bounds : pair of array_like, () or (m,), optional
        The lowest and the highest inputs, to which all are clipped.
    prior, scales : optional
        As for `Decoder`, in place of λ. Unless one of them is given, scales are the sizes at which
        each state and input alone costs as much as the start does; the same in all units.
    region : array_like, () or (d,), optional
        How large states may be where the machines are linear, None for one without a limit.
        Episodes that leave it end, and steps beyond teach nothing. Unless given, it is found: steps
        so far out that the law no longer fits those within are left out, with a warning.
    incumbent : LinearPolicy, array_like (m, d) or (H-1, m, d), or function of the context
        The controller that runs the machines today. `Cautious` plays it, with a dither that its
        closed loop bears, until it knows something that is better with the probability `level`.

    Raises
    ------
    InputError
        If something does not fit together.

    Examples
    --------
    >>> cost = clqr.QuadraticCost(Q=[np.eye(1)] * 5, R=[np.eye(1)] * 4)
    >>> agent = clqr.Agent(clqr.FeatureContext(["1", "1/mass"]), cost, [1.0])
    >>> plan = agent.ask({"mass": 2.0})
    >>> machine = clqr.LinearSystem([[0.9]], [[0.5]], noise=[[1e-4]])
    >>> agent.tell(plan, clqr.simulate(plan.policy, machine, [1.0], np.random.default_rng(0)))
    >>> agent.decoder.rows
    4
    """

    def __init__(
        self,
        context_map: ContextMap,
        cost: QuadraticCost,
        start: ArrayLike,
        strategy: Strategy | None = None,
        noise_level: ArrayLike = 0.01,
        regularisation: float | None = None,
        beta: float | BetaRule | None = None,
        seed: int | np.random.Generator = 0,
        *,
        deviations: Literal["estimated"] | ArrayLike | None = None,
        input_bounds: tuple[ArrayLike, ArrayLike] | None = None,
        prior: Prior | None = None,
        scales: ArrayLike | None = None,
        region: ArrayLike | Sequence[float | None] | None = None,
        incumbent: Incumbent | None = None,
    ) -> None:
        curved = isinstance(context_map, Dynamics)
        level = as_level(cost, noise_level)
        require_planned(curved, cost, strategy, incumbent)
        require_random(beta, seed)
        d, m = cost.state_size, cost.input_size
        self.cost = cost
        self.start = as_state(start, d)
        self.strategy: Strategy = Cautious() if strategy is None else strategy
        if prior is None and scales is None and regularisation is None and not curved:
            if isinstance(self.strategy, Cautious | CertaintyEquivalence | ThompsonSampling):
                scales = natural_scales(cost, self.start, level)
            else:  # it may choose from the paper's confidence set, which has one V for all rows
                regularisation = float(level.max()) ** 2
        self.decoder = Decoder(
            context_map.sized(d, m),
            regularisation,
            noise_level=level,
            deviations=deviations,
            prior=prior,
            scales=scales,
        )
        self.region = Region(d)
        if not curved or region is not None:
            self.region = as_region(region, natural_scales(cost, self.start, level)[:d], level)
        self.beta = beta
        self.input_bounds = None if input_bounds is None else as_input_bounds(input_bounds, m)
        self.incumbent = None if incumbent is None else as_incumbent(incumbent, m, d)
        self._rng = np.random.default_rng(seed)
        self._told_plans = 0
        self._stamps: dict[Path, str] = {}  # of the files it was loaded from or saved to
        self._played: list[Array] = []  # Θ̃ of plans that were told,
        self._estimates: list[Array] = []  # and the estimates they were made from

    # -- one episode -----------------------------------------------------------------------------

    def ask(
        self,
        context: Any,
        machine: str | None = None,
        *,
        start: ArrayLike | None = None,
        cost: QuadraticCost | None = None,
    ) -> Plan:
        """A plan for the machine with this context; nothing that was learnt is changed.

        Parameters
        ----------
        context
            The machine's context.
        machine : str, optional
            Its label, if machines are kept apart: what it has shown itself counts.
        start, cost : optional
            Those of this episode, which may be longer or shorter, if they are not the agent's.

        Returns
        -------
        Plan
            What to play: inputs `plan.input(step, state)`.
        """
        problem = self._problem(context, start, cost, machine)
        before = self._rng.bit_generator.state
        try:
            choice = self.strategy.choose(problem, self._rng)
        except BaseException:
            self._rng.bit_generator.state = before
            raise
        estimate = self.decoder.estimate
        return planned(context, choice, estimate, self.input_bounds, self._rng, machine)

    def tell(
        self, plan_or_context: Any, trajectory: Trajectory, machine: str | None = None
    ) -> None:
        """Learn from an episode, however long it was: all of it, or nothing.

        An episode that was told before is counted in `decoder.repeats`, and changes nothing else.

        Parameters
        ----------
        plan_or_context
            The plan that was played, or, for an episode that someone else chose, the context.
        trajectory : Trajectory
            What came of it.
        machine : str, optional
            The label of the machine that played it; the plan's, unless given.
        """
        plan = plan_or_context if isinstance(plan_or_context, Plan) else None
        context = plan_or_context if plan is None else plan.context
        if machine is None and plan is not None:
            machine = plan.machine
        repeats = self.decoder.repeats
        self.region.learn(self.decoder, context, trajectory, machine)
        if plan is None or self.decoder.repeats > repeats:
            return
        self._told_plans += 1
        place = len(self._played)
        if place == REMEMBERED:  # any plan so far remains with the same probability
            place = int(self._rng.integers(self._told_plans))
            if place >= REMEMBERED:
                return
        self._played[place : place + 1] = [plan.theta]
        self._estimates[place : place + 1] = [plan.estimate]

    @contextmanager
    def episode(
        self,
        context: Any,
        adapt: Literal["episode", "step"] = "episode",
        *,
        machine: str | None = None,
        start: ArrayLike | None = None,
        cost: QuadraticCost | None = None,
    ) -> Iterator[Episode]:
        """A live episode: `u = episode.act(x)`, then `episode.observe(x_next)`, until `finished`.

        Leaving the block, for whatever reason, tells the agent what was played.

        Parameters
        ----------
        context
            The machine's context.
        adapt : "episode" or "step"
            Play the plan; or learn from every step and plan the next one anew.
        machine, start, cost : optional
            As for `ask`.
        """
        known = isinstance(adapt, str) and adapt in ("episode", "step")
        require(known, f'adapt must be "episode" or "step", not {shown(adapt)}')
        episode = Episode(self, context, adapt, self._problem(context, start, cost, machine))
        try:
            yield episode
        except BaseException:
            with suppress(InputError):  # what went wrong in the block is what must be seen
                episode.tell()
            raise
        episode.tell()

    # -- what was learnt ---------------------------------------------------------------------------

    def controller(
        self, context: Any, machine: str | None = None, *, cost: QuadraticCost | None = None
    ) -> Any:  # of a union, callers who know their fleet would have to say which it is
        """The policy of the estimate, for a machine that need never have been tried.

        Parameters
        ----------
        context
            The machine's context.
        machine : str, optional
            Its label, if it is kept apart from others and has data of its own.
        cost : QuadraticCost, optional
            Another cost than the agent's.

        Returns
        -------
        LinearPolicy or TrajectoryPolicy
            Its gains, u = K x; of dynamics, about a path from the agent's start.

        Raises
        ------
        UnsolvableError
            If the estimate's problem has no solution.
        """
        decoder = self.decoder
        if isinstance(decoder.context_map, Dynamics):
            return planned_path(self._problem(context, None, cost, machine), aversion=0.0).policy
        if decoder.population is None and machine is None:
            system = decoder.system(context)
        else:
            system = decoder.machine(context, machine).system
        return solve(system, cost or self.cost, check=True).policy

    def output(self) -> Output:
        """A decoder drawn uniformly from those played so far, and one from the estimates."""
        require(self._played, "no plan was played and told yet, so there is nothing to draw from")
        k = int(self._rng.integers(len(self._played)))
        return Output(self._played[k], self._estimates[k])

    # -- files -------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all of the agent, its random state included, so that it resumes bit for bit.

        A file it was loaded from, or saved to before, is refused if another agent has written to
        it since: what that one learnt would be lost.

        Parameters
        ----------
        path : path
            The file, which is replaced if it exists.
        """
        file = real_path(path)
        since = self._stamps.get(file)
        state, arrays = agent_state(self)
        self._stamps[file] = save_arrays(path, "agent", FORMAT_VERSION, state, arrays, since=since)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        context_map: ContextMap | None = None,
        strategy: Strategy | None = None,
        beta: BetaRule | None = None,
        incumbent: Incumbent | None = None,
    ) -> Agent:
        """Read what `save` wrote.

        Parameters
        ----------
        path : path
            The file.
        context_map, strategy, beta, incumbent : optional
            What it could not write because it is made of functions or classes of your own.

        Returns
        -------
        Agent
            The same agent, which goes on as if it had never stopped.

        Raises
        ------
        FormatError
            If it is not such a file, is damaged, or has another version.
        """
        seen = stamp(path)
        state, arrays = load_arrays(path, "agent", FORMAT_VERSION)
        agent = restored(cls, state, arrays, str(path), context_map, strategy, beta, incumbent)
        agent._stamps[real_path(path)] = seen
        return agent

    def _facts(self) -> dict[str, object]:
        learnt = self.decoder._facts()
        steps = {"steps": self.cost.horizon - 1, "plans told": f"{self._told_plans:,}"}
        return {"strategy": type(self.strategy).__name__, **learnt, **self.region.facts(), **steps}

    # -- inside ------------------------------------------------------------------------------------

    def _problem(
        self,
        context: Any,
        start: ArrayLike | None,
        cost: QuadraticCost | None,
        machine: str | None = None,
    ) -> PlanningProblem:
        cost = self.cost if cost is None else cost
        require(isinstance(cost, QuadraticCost), f"cost must be a QuadraticCost, not {shown(cost)}")
        sizes = (self.cost.state_size, self.cost.input_size)
        if (cost.state_size, cost.input_size) != sizes or cost.batch_shape:
            raise InputError(f"the cost must be one for {sizes[0]} states and {sizes[1]} inputs")
        G = self.decoder.context_map.matrix(context)
        x = self.start if start is None else as_state(start, sizes[0])
        run = None
        if self.incumbent is not None:
            run = incumbent_policy(self.incumbent, context, cost.horizon - 1, *sizes[::-1])
        own = {"context": context, "input_bounds": self.input_bounds}
        return PlanningProblem(self.decoder, G, cost, x, self._beta(G), run, machine, **own)

    def _beta(self, G: Array) -> float | BetaRule:
        if self.beta is not None or isinstance(self.decoder.context_map, Dynamics):
            return self.beta or 0.0
        # √λ c_Θ is then √(dp) noise levels: entries of Θ of the order of noise_level / √λ.
        level = float(np.max(self.decoder.noise_level))
        most = float(self.decoder.regression.prior.max())
        size = float(level * np.sqrt(len(self.start) * len(G) / most))
        return DeterminantBeta(size, level, 0.1)
