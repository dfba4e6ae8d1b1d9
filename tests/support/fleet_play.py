"""Two fleets, situations made from them, agents that play them, and how well they have learnt."""

from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray as Array

from contextual_lqr import (
    Agent,
    Cautious,
    CertaintyEquivalence,
    FeatureContext,
    LinearPolicy,
    LinearSystem,
    Optimism,
    Plan,
    QuadraticCost,
    SampledOptimism,
    Strategy,
    ThompsonSampling,
    Trajectory,
    optimal_cost,
    policy_cost,
    solve,
)
from contextual_lqr.fleets import Fleet, path_following, true_decoder, true_system
from contextual_lqr.planning import PlanningProblem
from episodes import snapshot

# A strategy joins all the tests that every strategy must pass by one line here.
STRATEGIES: dict[str, Strategy] = {
    "sampled": SampledOptimism(),
    "sampled, estimate played": SampledOptimism(play="estimate"),
    "thompson": ThompsonSampling(),
    "certainty": CertaintyEquivalence(),
    "certainty, no dither": CertaintyEquivalence(0.0),
    "optimism": Optimism(),
    "cautious": Cautious(),
    "cautious, limited": Cautious(state_limit=3.0),
}


def small_fleet(horizon: int = 8) -> Fleet:
    """Two states, one input, features 1 and gain, and a cost with a cross term."""
    Q = np.broadcast_to(np.array([[1.0, 0.2], [0.2, 0.5]]), (horizon, 2, 2))
    N = np.broadcast_to(np.array([[0.2], [-0.1]]), (horizon - 1, 2, 1))
    theta = np.array([[0.6, 0.2, 1.0, 0.1, -0.2, 0.3], [-0.1, 0.5, -0.4, 0.3, 0.1, 0.7]])
    return Fleet(
        FeatureContext(["1", "gain"], states=2, inputs=1, bounds={"gain": (0, 2)}),
        QuadraticCost(Q, np.ones((horizon - 1, 1, 1)), N),
        np.array([1.0, -0.5]),
        1e-4 * np.eye(2),
        lambda rng: {"gain": float(rng.uniform(0, 2))},
        theta,
    )


FLEETS = {"path": path_following("circle"), "small": small_fleet()}


def off_policy(
    fleet: Fleet, rng: np.random.Generator, scale: float = 1.0, steps: int = 19, noise: float = 1.0
) -> tuple[Any, Trajectory]:
    """An episode of random inputs from a random start, all about as large as `scale`."""
    context = fleet.sample_context(rng)
    system = true_system(fleet, context)
    u = scale * rng.standard_normal((steps, system.input_size))
    x = [fleet.start + scale * rng.standard_normal(system.state_size) * (fleet.start != 1)]
    for h in range(steps):
        shock = noise * system.noise_factor @ rng.standard_normal(system.state_size)
        x.append(system.A @ x[h] + system.B @ u[h] + shock)
    return context, Trajectory(np.array(x), u)


def taught(
    fleet: Fleet,
    episodes: int,
    strategy: Strategy | None = None,
    level: Any = 0.01,
    *,
    scale: float = 1.0,
    seed: int = 5,
    **options: Any,
) -> Agent:
    """An agent that has been told episodes that somebody else played."""
    rng = np.random.default_rng(seed)
    agent = Agent(fleet.context_map, fleet.cost, fleet.start, strategy, level, **options)
    for _ in range(episodes):
        agent.tell(*off_policy(fleet, rng, scale))
    return agent


def problem(fleet: Fleet, episodes: int = 0, level: Any = 0.01, **options: Any) -> PlanningProblem:
    """The problem of such an agent before an episode."""
    context = fleet.sample_context(np.random.default_rng(55))
    return taught(fleet, episodes, level=level, **options)._problem(context, None, None)


def after(system: LinearSystem, x: Array, u: Array, rng: np.random.Generator) -> Array:
    """The next state of a machine, with noise from this generator."""
    shock = system.noise_factor @ rng.standard_normal(system.state_size)
    return np.asarray(system.A @ x + system.B @ u + shock)


def play_plan(plan: Plan, fleet: Fleet, context: Any, noise: np.random.Generator) -> Trajectory:
    """Play what was planned."""
    system, x = true_system(fleet, context), fleet.start
    states, inputs = [x], []
    for h in range(fleet.cost.horizon - 1):
        inputs.append(plan.input(h, x))
        x = after(system, x, inputs[-1], noise)
        states.append(x)
    return Trajectory(np.array(states), np.array(inputs))


def play_asked(agent: Agent, fleet: Fleet, context: Any, noise: np.random.Generator) -> Trajectory:
    """Ask, play, tell."""
    plan = agent.ask(context)
    trajectory = play_plan(plan, fleet, context, noise)
    agent.tell(plan, trajectory)
    return trajectory


def play_live(
    agent: Agent, fleet: Fleet, context: Any, noise: np.random.Generator, adapt: Any = "episode"
) -> Trajectory:
    """The same as a live episode."""
    system, x = true_system(fleet, context), fleet.start
    states, inputs = [x], []
    with agent.episode(context, adapt) as episode:
        while not episode.finished:
            inputs.append(episode.act(x))
            x = after(system, x, inputs[-1], noise)
            episode.observe(x)
            states.append(x)
    return Trajectory(np.array(states), np.array(inputs))


def play_many(agent: Agent, fleet: Fleet, numbers: range, adapt: Any) -> None:
    """Live episodes; the machine and the noise of each depend on its number alone."""
    for k in numbers:
        rng = np.random.default_rng([91, k])
        play_live(agent, fleet, fleet.sample_context(rng), rng, adapt)


def agent_bits(agent: Agent) -> dict[str, Any]:
    """All that an agent is, to the bit."""
    return {
        "decoder": snapshot(agent.decoder),
        "random": repr(agent._rng.bit_generator.state),
        "played": [theta.tobytes() for theta in agent._played],
        "estimates": [theta.tobytes() for theta in agent._estimates],
        "estimate": agent.decoder.estimate.tobytes(),
        "factor": agent.decoder.factor.tobytes(),
        "fixed": repr((agent.strategy, agent.beta, agent.input_bounds)),
        "start": (agent.start.tobytes(), np.asarray(agent.decoder.noise_level).tobytes()),
    }


# ---- scores --------------------------------------------------------------------------------------


def control_error(agent: Agent, fleet: Fleet, contexts: list[Any]) -> float:
    """The mean of what the estimate's policies cost above the optimum, exactly."""
    policies = solve(agent.decoder.systems(contexts), fleet.cost).policy
    A, B = (
        np.stack([getattr(true_system(fleet, c), name) for c in contexts]) for name in ("A", "B")
    )
    truth = LinearSystem(A, B, fleet.noise)
    best = optimal_cost(truth, fleet.cost, fleet.start)
    return float(np.mean(policy_cost(policies, truth, fleet.cost, fleet.start) - best))


def decoder_error(agent: Agent, fleet: Fleet) -> float:
    return float(np.linalg.norm(agent.decoder.estimate - true_decoder(fleet)))


def regret_of(fleet: Fleet, context: Any, policy: LinearPolicy, dither: Array | None) -> float:
    """The expected cost above the optimum, that of the dither included."""
    truth = true_system(fleet, context)
    J = policy_cost(policy, truth, fleet.cost, fleet.start, dither=dither)
    return float(J - optimal_cost(truth, fleet.cost, fleet.start))


def regret_along(fleet: Fleet, context: Any, played: Trajectory) -> float:
    """Σ ‖u - K* x‖² in the metric R + Bᵀ P* B: the performance-difference identity."""
    truth = true_system(fleet, context)
    best = solve(truth, fleet.cost)
    total = 0.0
    for h, (x, u) in enumerate(zip(played.states[:-1], played.inputs, strict=True)):
        off = u - best.policy.gains[h] @ x
        P = best.value_matrices[h + 1]
        total += off @ (fleet.cost.R[h] + truth.B.T @ P @ truth.B) @ off
    return float(total)


class Run(NamedTuple):
    """What a learner did over some episodes, and knew afterwards."""

    regrets: list[float]
    largest: float
    errors: dict[int, float]
    decoder_error: float
    plans: int


def run(
    fleet: Fleet,
    strategy: Strategy,
    seed: int,
    episodes: int,
    adapt: str = "episode",
    **options: Any,
) -> Run:
    """Fresh masses and noise; control errors after 5 and 10 episodes, on 100 other masses."""
    rng = np.random.default_rng([seed, 1])
    agent = Agent(fleet.context_map, fleet.cost, fleet.start, strategy, seed=seed, **options)
    tests = [fleet.sample_context(rng) for _ in range(100)]
    regrets, largest, errors = [], 0.0, {}
    for k in range(1, episodes + 1):
        context = fleet.sample_context(rng)
        if adapt == "episode":
            state = agent._rng.bit_generator.state
            plan = agent.ask(context)
            agent._rng.bit_generator.state = state
            regrets.append(regret_of(fleet, context, plan.policy, plan.dither))
            played = play_asked(agent, fleet, context, rng)
        else:
            played = play_live(agent, fleet, context, rng, adapt)
            regrets.append(regret_along(fleet, context, played))
        largest = max(largest, float(np.abs(played.states).max()))
        if k in (5, 10):
            errors[k] = control_error(agent, fleet, tests)
    return Run(regrets, largest, errors, decoder_error(agent, fleet), len(agent._played))
