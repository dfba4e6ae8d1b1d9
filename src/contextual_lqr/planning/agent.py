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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from numpy.typing import ArrayLike

from contextual_lqr.belief.confidence import BetaRule, DeterminantBeta
from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.checks import as_numbers, frozen, record, require, shown
from contextual_lqr.context import ContextMap
from contextual_lqr.errors import FormatError, InputError, OwnRuleError
from contextual_lqr.files import load_arrays, real_path, save_arrays, stamp
from contextual_lqr.lqr.problem import LinearPolicy, QuadraticCost, Trajectory
from contextual_lqr.lqr.solve import solve
from contextual_lqr.planning import Cautious, Choice, PlanningProblem, Strategy
from contextual_lqr.planning.plan import Plan
from contextual_lqr.planning.serialization import read, written

FORMAT_VERSION = 2
_REMEMBERED = 1024  # decoders that `output` draws from: a sample of all, once there are more


class Output(NamedTuple):
    """The decoders of the Theorem (from the Θ̃ played) and of the Remark (from the estimates)."""

    optimistic: Float[Array, "d p"]
    estimate: Float[Array, "d p"]


class Agent:
    """Learns the decoder of a fleet, one episode a machine.

    `noise_level` is the rough standard deviation of a step's noise, a number or one for each state
    coordinate, zero where a coordinate is exact. The regularisation is its square unless given: the
    prior then says that entries of Θ are of the order of one. β is that of the determinant form
    with ‖Θ‖ of that order and δ = 0.1, unless given. `seed` is a whole number or a `Generator`.
    `deviations` are those of `Decoder`; without them every machine obeys the law, as in the paper.
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
    ) -> None:
        d, m = cost.state_size, cost.input_size
        level = as_numbers("noise_level", noise_level, "() or (d,)", 0)
        require(
            level.shape in ((), (d,)) and (level >= 0).all() and level.max() > 0,
            f"noise_level must be positive, or {d} numbers with some of them 0, not {level}",
        )
        require(
            strategy is None or isinstance(strategy, Strategy),
            f"strategy must have choose and next_input, as Cautious() has, not {strategy!r}",
        )
        require(not cost.batch_shape, f"cost must be one, not a batch of shape {cost.batch_shape}")
        require(
            beta is None or callable(beta) or 0 <= beta < np.inf,
            f"beta must be a finite number of at least 0, or a rule, not {beta!r}",
        )
        require(
            isinstance(seed, np.random.Generator)
            or (isinstance(seed, int | np.integer) and seed >= 0),
            f"seed must be a whole number of at least 0, or a Generator, not {seed!r}",
        )
        limit = np.shape(getattr(strategy, "state_limit", None) or 1.0)
        require(limit in ((), (d,)), f"state_limit must be a number or {d} of them, not {limit}")
        self.cost = cost
        self.start = _start(start, d)
        self.strategy: Strategy = Cautious() if strategy is None else strategy
        self.decoder = Decoder(
            context_map.sized(d, m),
            float(level.max()) ** 2 if regularisation is None else regularisation,
            noise_level=np.broadcast_to(level, (d,)),
            deviations=deviations,
        )
        self.beta = beta
        self.input_bounds = None if input_bounds is None else _bounds(input_bounds, m)
        self._rng = np.random.default_rng(seed)
        self._told_plans = 0
        self._played: list[Array] = []  # Θ̃ of plans that were told,
        self._estimates: list[Array] = []  # and the estimates they were made from
        self._stamps: dict[Path, str] = {}  # of the files it was loaded from or saved to

    # -- one episode -----------------------------------------------------------------------------

    def ask(
        self, context: Any, *, start: ArrayLike | None = None, cost: QuadraticCost | None = None
    ) -> Plan:
        """A plan for the machine with this context; nothing that was learnt is changed.

        An episode may have a start and a cost, and so a length, of its own.
        """
        problem = self._problem(context, start, cost)
        before = self._rng.bit_generator.state
        try:
            choice = self.strategy.choose(problem, self._rng)
        except BaseException:
            self._rng.bit_generator.state = before
            raise
        return self._plan(context, choice, problem.cost)

    def tell(
        self, plan_or_context: Any, trajectory: Trajectory, machine: str | None = None
    ) -> None:
        """Learn from an episode, however long it was: all of it, or nothing.

        Give the plan that was played, or, for an episode that someone else chose, the context;
        `machine` is the label of the machine that played it. An episode that was told before is
        counted in `decoder.repeats`, and changes nothing else.
        """
        plan = plan_or_context if isinstance(plan_or_context, Plan) else None
        context = plan_or_context if plan is None else plan.context
        repeats = self.decoder.repeats
        self.decoder.update(context, trajectory, machine)
        if plan is None or self.decoder.repeats > repeats:
            return
        self._told_plans += 1
        place = len(self._played)
        if place == _REMEMBERED:  # any plan so far remains with the same probability
            place = int(self._rng.integers(self._told_plans))
            if place >= _REMEMBERED:
                return
        self._played[place : place + 1] = [plan.theta]
        self._estimates[place : place + 1] = [plan.estimate]

    @contextmanager
    def episode(
        self,
        context: Any,
        adapt: Literal["episode", "step"] = "episode",
        *,
        start: ArrayLike | None = None,
        cost: QuadraticCost | None = None,
    ) -> Iterator[Episode]:
        """A live episode: `u = episode.act(x)`, then `episode.observe(x_next)`, until `finished`.

        `adapt="episode"` plays the plan; `adapt="step"` learns from every step and plans the next
        one anew. Leaving the block, in whichever way, tells what was played.
        """
        known = isinstance(adapt, str) and adapt in ("episode", "step")
        require(known, f'adapt must be "episode" or "step", not {shown(adapt)}')
        episode = Episode(self, context, adapt, self._problem(context, start, cost))
        try:
            yield episode
        except BaseException:
            with suppress(InputError):  # what went wrong in the block is what must be seen
                episode.tell()
            raise
        episode.tell()

    # -- what was learnt ---------------------------------------------------------------------------

    def controller(self, context: Any, *, cost: QuadraticCost | None = None) -> LinearPolicy:
        """The policy of the estimate, for a machine that need never have been tried."""
        return solve(self.decoder.system(context), cost or self.cost, check=True).policy

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
        """
        decoder, arrays = self.decoder.state()
        arrays |= {"Q": self.cost.Q, "R": self.cost.R, "start": self.start}
        if self.cost.N is not None:
            arrays["N"] = self.cost.N
        if self.input_bounds is not None:
            arrays["input_bounds"] = np.stack(self.input_bounds)
        if self._played:
            arrays |= {"played": np.stack(self._played), "estimates": np.stack(self._estimates)}
        state = {
            "decoder": decoder,
            "random": self._rng.bit_generator.state,
            "strategy": written(self.strategy),
            "beta": written(self.beta),
            "indefinite": self.cost.indefinite,
            "told_plans": self._told_plans,
            "own_beta": self.beta is not None and written(self.beta) is None,
        }
        file = real_path(path)
        since = self._stamps.get(file)
        self._stamps[file] = save_arrays(path, "agent", FORMAT_VERSION, state, arrays, since=since)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        context_map: ContextMap | None = None,
        strategy: Strategy | None = None,
        beta: BetaRule | None = None,
    ) -> Agent:
        """Read what `save` wrote; what it could not write (your own functions) is given again."""
        seen = stamp(path)
        state, arrays = load_arrays(path, "agent", FORMAT_VERSION)
        try:
            for name, given, own in (
                ("strategy", strategy, state["strategy"] is None),
                ("beta", beta, state["own_beta"]),
            ):
                if own and given is None:
                    raise OwnRuleError(
                        f"{path} was saved with a {name} of your own, which cannot be written "
                        f"down: give the same one as {name}="
                    )
            decoder = Decoder.from_state(state["decoder"], arrays, context_map, str(path))
            m = arrays["R"].shape[-1]
            bounds = arrays.get("input_bounds")
            require(bounds is None or bounds.shape == (2, m), "its input_bounds are no pair")
            agent = cls(
                decoder.context_map,
                QuadraticCost(
                    arrays["Q"], arrays["R"], arrays.get("N"), indefinite=state["indefinite"]
                ),
                arrays["start"],
                read(state["strategy"]) if strategy is None else strategy,
                decoder.noise_level,
                decoder.regularisation,
                read(state["beta"]) if beta is None else beta,
                input_bounds=None if bounds is None else (bounds[0], bounds[1]),
            )
            decoder.context_map = agent.decoder.context_map
            agent.decoder = decoder
            played, estimates = (arrays.get(n, np.zeros((0,))) for n in ("played", "estimates"))
            require(
                played.shape == estimates.shape
                and (not len(played) or played.shape[1:] == decoder.estimate.shape)
                and np.isfinite(played).all()
                and np.isfinite(estimates).all(),
                "its decoders played and estimated do not fit together",
            )
            agent._played, agent._estimates = list(played), list(estimates)
            agent._told_plans = state["told_plans"]
            require(
                type(agent._told_plans) is int and agent._told_plans >= len(played) <= _REMEMBERED,
                f"it counts {agent._told_plans!r} plans, and holds {len(played)}",
            )
            agent._rng.bit_generator.state = state["random"]
            agent._stamps[real_path(path)] = seen
        except (FormatError, OwnRuleError):
            raise
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise FormatError(f"{path} is damaged: {error}") from error
        return agent

    # -- inside ------------------------------------------------------------------------------------

    def _problem(
        self, context: Any, start: ArrayLike | None, cost: QuadraticCost | None
    ) -> PlanningProblem:
        cost = self.cost if cost is None else cost
        sizes = (self.cost.state_size, self.cost.input_size)
        if (cost.state_size, cost.input_size) != sizes or cost.batch_shape:
            raise InputError(f"the cost must be one for {sizes[0]} states and {sizes[1]} inputs")
        G = self.decoder.context_map.matrix(context)
        x = self.start if start is None else _start(start, sizes[0])
        return PlanningProblem(self.decoder, G, cost, x, self._beta(G))

    def _beta(self, G: Array) -> float | BetaRule:
        if self.beta is not None:
            return self.beta
        # √λ c_Θ is then √(dp) noise levels: entries of Θ of the order of noise_level / √λ.
        level = float(np.max(self.decoder.noise_level))
        size = float(level * np.sqrt(len(self.start) * len(G) / self.decoder.regularisation))
        return DeterminantBeta(size, level, 0.1)

    def _plan(self, context: Any, choice: Choice, cost: QuadraticCost) -> Plan:
        offsets = np.zeros((cost.horizon - 1, cost.input_size))
        if choice.dither is not None:
            offsets = self._dither(choice.dither)
        estimate = self.decoder.estimate
        return Plan(
            context,
            choice.policy,
            estimate if choice.theta is None else choice.theta,
            choice.promised_cost,
            choice.dither,
            choice.diagnostics,
            estimate,
            offsets,
            self.input_bounds,
        )

    def _dither(self, covariances: Float[Array, "*steps m m"]) -> Float[Array, "*steps m"]:
        spread, directions = np.linalg.eigh(covariances)
        drawn = np.sqrt(np.maximum(spread, 0)) * self._rng.standard_normal(spread.shape)
        return np.asarray((directions @ drawn[..., None])[..., 0])


class Episode:
    """One episode being played on a machine, step by step."""

    def __init__(self, agent: Agent, context: Any, adapt: str, problem: PlanningProblem) -> None:
        self._agent, self._context, self._problem = agent, context, problem
        self._steps = problem.cost.horizon - 1
        self._limit = getattr(agent.strategy, "state_limit", None)
        self._states: list[Array] = []
        self._inputs: list[Array] = []
        self.plan: Plan | None = None  # of adapt="episode"
        self._believed: Decoder | None = None
        if adapt == "step":
            self._believed = agent.decoder.copy()
        else:
            self.plan = agent.ask(context, start=problem.start, cost=problem.cost)
        self._stopped = False

    @property
    def finished(self) -> bool:
        """Whether the horizon is reached, or the state has left the strategy's limit."""
        return self._stopped or len(self._states) > self._steps

    def act(self, state: ArrayLike) -> Float[Array, " m"]:
        """The input to play in this state."""
        x = _start(state, self._problem.cost.state_size)
        step = len(self._inputs)
        require(not self.finished, f"the episode is finished after {step} steps: leave its block")
        require(len(self._states) in (0, step + 1), "observe the next state before you act again")
        if not self._states:
            self._states.append(x)
        u = self._replanned(x, step) if self.plan is None else self.plan.input(step, x)
        self._inputs.append(u)
        return u.copy()

    def observe(self, state: ArrayLike, played: ArrayLike | None = None) -> None:
        """The state that came of the last input, or of what the machine `played` in its place."""
        x = _start(state, self._problem.cost.state_size)
        step = len(self._inputs)
        require(step and step == len(self._states), "act before you observe the next state")
        if played is not None:
            u = as_numbers("played", played, "(m,)", 1)
            shape = self._inputs[-1].shape
            require(u.shape == shape, f"played must have shape {shape}, not {u.shape}")
            self._inputs[-1] = frozen(u)
        if self._believed is not None:
            last = Trajectory(np.stack((self._states[-1], x)), self._inputs[-1][None])
            self._believed.update(self._context, last)
        self._states.append(x)
        if self._limit is not None and (np.abs(x) > self._limit).any():
            self._stopped = True

    def tell(self) -> None:
        """Tell the agent what was played; done by leaving the block."""
        played = len(self._states) - 1
        if played < 1:
            return
        inputs = np.stack(self._inputs[:played])
        played_as = self._context if self.plan is None else self.plan
        self._agent.tell(played_as, Trajectory(np.stack(self._states), inputs))

    def _replanned(self, x: Array, step: int) -> Array:
        whole, agent = self._problem, self._agent
        N = whole.cost.N
        rest = record(
            object.__new__(QuadraticCost),
            Q=whole.cost.Q[step:],
            R=whole.cost.R[step:],
            N=None if N is None else N[step:],
            indefinite=whole.cost.indefinite,
        )
        assert self._believed is not None
        now = PlanningProblem(self._believed, whole.context_matrix, rest, x, whole.beta)
        u, covariance = agent.strategy.next_input(now, agent._rng)
        if covariance is not None:
            u = u + agent._dither(covariance)
        return u if agent.input_bounds is None else np.clip(u, *agent.input_bounds)


def _start(state: ArrayLike, d: int) -> Float[Array, " d"]:
    x = as_numbers("state", state, "(d,)", 1)
    require(x.shape == (d,), f"a state has {d} coordinates, but this has shape {x.shape}")
    return frozen(x)


def _bounds(bounds: Any, m: int) -> tuple[Array, Array]:
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        raise InputError(f"input_bounds must be a pair (low, high), not {bounds!r}")
    pair = [np.asarray(bound, float) for bound in bounds]
    require(
        all(bound.shape in ((), (m,)) for bound in pair) and (pair[0] <= pair[1]).all(),
        f"input_bounds must be low <= high, each a number or {m} of them, not {bounds!r}",
    )
    low, high = (frozen(np.broadcast_to(bound, (m,))) for bound in pair)
    return low, high
