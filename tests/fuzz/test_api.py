"""Odd arguments for everything public: an answer, or a sentence of ours, never another error.

Every call below is good as it stands; a case changes one or two of its arguments into something
odd: of another type or shape, missing, masked, huge, not finite.
"""

import datetime
import io
import resource
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from cases import campaign
from hypothesis import given, settings
from hypothesis import strategies as st

import contextual_lqr as c
from contextual_lqr.data import TEMPLATE
from episodes import MAP, episode, learnt
from fleet_logs import cart_rows, write

RNG = np.random.default_rng
D, M, H = 2, 1, 5
CONTEXT = {"gain": 1.5}
SYSTEM = c.LinearSystem([[0.9, 0.1], [0.0, 0.8]], [[0.0], [1.0]], 0.01 * np.eye(D))
COST = c.QuadraticCost(np.stack([np.eye(D)] * H), np.stack([np.eye(M)] * (H - 1)))
ENDLESS = c.StationaryCost(np.eye(D), np.eye(M))
STEADY = c.StationaryPolicy(np.zeros((M, D)))
HOLDING = c.Controller(SYSTEM, ENDLESS, target={"state 1": 0.0})
POLICY = c.solve(SYSTEM, COST).policy
SOLUTION = c.solve(SYSTEM, COST)
TRAJECTORY = episode(RNG(0))[1]
DECODER = learnt([episode(RNG(i)) for i in range(8)], 1e-4)
SET = c.ConfidenceSet(DECODER, 2.0)
START = np.array([1.0, 0.5])
OTHER = learnt([episode(RNG(99))], 1e-4)
THETA = np.array(DECODER.estimate)
MACHINES = DECODER.copy()
for _i in range(6):
    MACHINES.update(CONTEXT, episode(RNG(50 + _i))[1], "one" if _i < 3 else "two")
CARTS = c.FleetDescription.parse(TEMPLATE)
FITTED = c.FittedFleet.new(CARTS)
TAUGHT = c.FittedFleet.new(CARTS)
TAUGHT.decoder.update({"mass": 2.0}, TRAJECTORY)


TANK = c.FeatureDynamics(["x", "sqrt(x)/gain", "u"], states=["x"], inputs=["u"])


def drained(**options: Any) -> c.Decoder:
    decoder = c.Decoder(TANK, **options)
    levels = np.array([[4.0], [3.0], [2.5], [2.2]])
    decoder.update(CONTEXT, c.Trajectory(levels, [[0.1], [0.3], [-0.2]]), "a")
    return decoder


def agent() -> c.Agent:
    return c.Agent(MAP, COST, START, c.CertaintyEquivalence(), seed=1)


def taught() -> c.Agent:
    one = agent()
    one.tell(*episode(RNG(1)))
    return one


def played(start: Any, adapt: Any, seen: Any, done: Any) -> None:
    with agent().episode(CONTEXT, adapt, start=start) as run:
        run.act(start)
        run.observe(seen, done)


def by_rows(contexts: Any, states: Any, inputs: Any, after: Any, episodes: Any) -> None:
    DECODER.copy().update_rows(contexts, states, inputs, after, episodes=episodes)


PLANNED, HISTORY = c.Schedule([CONTEXT] * (H - 1)), c.OutputHistory(1, 1, 2)


def studied() -> c.Study:
    """One in memory, of its own."""
    return c.Study.open("sqlite://", agent())


FALLING = c.DynamicsBelief.known(TANK, CONTEXT, [[1.0, -0.1, 0.2]])
LEVEL = c.TargetCost(Q=[np.eye(1)] * H, R=[np.eye(1)] * (H - 1), target=[1.0])

Call = tuple[Callable[..., Any], dict[str, Any]]
CALLS: dict[str, Call] = {
    "Study.open": (
        lambda **k: c.Study.open(**k).close(), dict(url="sqlite://", fleet=agent(), strategy=None),
    ),
    "Study.ask": (
        lambda **k: studied().ask(**k),
        dict(context=CONTEXT, machine="a", start=START, key="k", lease=9.0, worker="w"),
    ),
    "Study.tell": (
        lambda **k: studied().tell(**k),
        dict(plan_or_context=CONTEXT, trajectory=TRAJECTORY, machine="a", key="k", worker="w"),
    ),
    "TargetCost": (
        c.TargetCost,
        dict(Q=[np.eye(2)] * H, R=[np.eye(1)] * (H - 1), target=[1.0, 0.0], angles=[0]),
    ),
    "solve_trajectory": (
        c.solve_trajectory,
        dict(machine=FALLING, cost=LEVEL, start=[2.0], input_bounds=(-1.0, 1.0), attempts=2),
    ),
    "Agent": (
        c.Agent,
        dict(context_map=MAP, cost=COST, start=START, strategy=c.ThompsonSampling(),
             noise_level=0.1, regularisation=1.0, beta=2.0, seed=0, input_bounds=(-1.0, 1.0)),
    ),
    "Agent.ask": (lambda **k: agent().ask(**k), dict(context=CONTEXT, start=START, cost=COST)),
    "Agent.tell": (
        lambda **k: agent().tell(**k),
        dict(plan_or_context=CONTEXT, trajectory=TRAJECTORY, machine="a"),
    ),
    "Agent.controller": (lambda **k: taught().controller(**k), dict(context=CONTEXT, cost=COST)),
    "Agent.episode": (
        played, dict(start=START, adapt="step", seen=np.zeros(D), done=np.zeros(M)),
    ),
    "Agent.save": (lambda **k: taught().save(**k), dict(path="an.agent")),
    "Agent.load": (c.Agent.load, dict(path="an.agent", context_map=MAP, strategy=None, beta=None)),
    "BlockContext": (
        c.BlockContext,
        dict(C=[["gain", 0], [0, 1]], D=[[1.0]], states=2, inputs=1, bounds={"gain": (0, 9)},
             allow_outside=True),
    ),
    "FeatureContext": (
        c.FeatureContext,
        dict(features=["1", "gain"], states=2, inputs=1, bounds={"gain": (0.0, 9.0)},
             allow_outside=False),
    ),
    "FunctionContext": (
        c.FunctionContext, dict(f=lambda _: np.eye(3), states=2, inputs=1, bounds=None),
    ),
    "FeatureDynamics": (
        c.FeatureDynamics,
        dict(features=["x", "sin(x)/gain", "u"], states=["x", "v"], inputs=["u"],
             bounds={"gain": (0.1, 9.0)}, allow_outside=False),
    ),
    "FunctionDynamics": (
        lambda **k: c.FunctionDynamics(**k).jacobian(CONTEXT, [1.0, 2.0], [3.0]),
        dict(function=lambda _, x, u: np.sin(x), states=2, inputs=["u"], jacobian=None,
             scales=np.ones(3), bounds=None),
    ),
    "Dynamics.features": (
        TANK.features, dict(context=CONTEXT, states=np.ones((3, 1)), inputs=np.zeros((3, 1))),
    ),
    "Dynamics.jacobian": (
        TANK.jacobian, dict(context=CONTEXT, states=np.ones((3, 1)), inputs=np.zeros((3, 1))),
    ),
    "Decoder.of_dynamics": (
        lambda context, states, inputs, machine, **k: drained(**k).predict(
            context, states, inputs, machine
        ),
        dict(context=CONTEXT, states=np.ones((3, 1)), inputs=np.zeros((3, 1)), machine=None,
             regularisation=None, noise_level=0.1, deviations="estimated", scales=None),
    ),
    "DynamicsBelief.draw": (
        lambda **k: drained().machine(CONTEXT).draw(**k), dict(n=3, rng=RNG(0), stretch=1.0),
    ),
    "DynamicsBelief.linearise": (
        lambda **k: drained().machine(CONTEXT).linearise(**k),
        dict(states=np.ones((4, 1)), inputs=np.zeros((4, 1))),
    ),
    "Decoder.predict": (
        DECODER.predict, dict(context=CONTEXT, states=np.ones((3, D)), inputs=np.ones((3, M))),
    ),
    "ContextMap.matrix": (MAP.matrix, dict(context=CONTEXT)),
    "ContextMap.matrices": (MAP.matrices, dict(contexts=[CONTEXT, CONTEXT])),
    "ContextMap.sized": (c.FeatureContext(["1"]).sized, dict(states=2, inputs=1)),
    "Cautious": (
        c.Cautious,
        dict(draws=8, stress=4, stretch=1.5, aversions=(1.0, 2.0), level=0.9, max_cost_ratio=9.0,
             probe=1.0, budget=0.3, state_limit=5.0, confidence=0.9, doubt=0.3,
             step_budget=0.03, step_probe=1.0),
    ),
    "CertaintyEquivalence": (c.CertaintyEquivalence, dict(dither=0.1)),
    "Optimism": (
        c.Optimism,
        dict(beta=2.0, draws=4, starts=2, rounds=1, kept=1, polish=1, tolerance=1e-3,
             value_bound=9.0, certify=True),
    ),
    "SampledOptimism": (
        c.SampledOptimism, dict(samples=3, beta=2.0, play="optimistic", value_bound=None),
    ),
    "ThompsonSampling": (c.ThompsonSampling, dict(attempts=3)),
    "ConstantBeta": (c.ConstantBeta, dict(value=2.0)),
    "PaperBeta": (c.PaperBeta, dict(c_theta=1.0, c_w=1.0, c_x=1.0, delta=0.1)),
    "DeterminantBeta": (c.DeterminantBeta, dict(c_theta=1.0, c_w=1.0, delta=0.1)),
    "ConfidenceSet": (c.ConfidenceSet, dict(decoder=DECODER, beta=2.0)),
    "ConfidenceSet.distance": (SET.distance, dict(theta=THETA)),
    "ConfidenceSet.contains": (SET.contains, dict(theta=THETA)),
    "ConfidenceSet.sample": (SET.sample, dict(n=3, rng=RNG(0))),
    "ConfidenceSet.draw": (SET.draw, dict(n=3, rng=RNG(0), scale=1.0)),
    "ConfidenceSet.lowest_linear": (SET.lowest_linear, dict(direction=THETA)),
    "Decoder": (
        c.Decoder,
        dict(context_map=MAP, regularisation=1.0, noise_level=0.1, known={0: np.zeros(6)},
             deviations=np.stack([0.1 * np.eye(D + M)] * D)),
    ),
    "Decoder.update": (
        lambda **k: DECODER.copy().update(**k),
        dict(context=CONTEXT, trajectory=TRAJECTORY, machine=None, allow_repeats=False),
    ),
    "Decoder.update_many": (
        lambda **k: DECODER.copy().update_many(**k),
        dict(contexts=[CONTEXT] * 2, trajectories=[TRAJECTORY] * 2, machine=["a", None]),
    ),
    "Decoder.update_rows": (
        by_rows,
        dict(contexts=[CONTEXT] * 3, states=np.ones((3, D)), inputs=np.ones((3, M)),
             after=np.ones((3, D)), episodes=1),
    ),
    "Decoder.merge": (
        lambda **k: DECODER.copy().merge(**k), dict(other=OTHER, allow_repeats=False),
    ),
    "Decoder.system": (DECODER.system, dict(context=CONTEXT)),
    "Decoder.systems": (DECODER.systems, dict(contexts=[CONTEXT] * 2)),
    "Decoder.machine": (MACHINES.machine, dict(context=CONTEXT, machine="one")),
    "Decoder.machines": (
        MACHINES.machines, dict(contexts=[CONTEXT] * 2, machine=["one", None]),
    ),
    "MachineBelief.draw": (
        lambda **k: DECODER.machine(CONTEXT).draw(**k), dict(n=3, rng=RNG(0), stretch=1.0),
    ),
    "Decoder.save": (DECODER.save, dict(path="a.decoder")),
    "Decoder.load": (c.Decoder.load, dict(path="a.decoder", context_map=None)),
    "LinearPolicy": (c.LinearPolicy, dict(gains=POLICY.gains)),
    "LinearSystem": (c.LinearSystem, dict(A=SYSTEM.A, B=SYSTEM.B, noise=np.eye(D))),
    "ModelUncertainty": (c.ModelUncertainty, dict(covariances=np.stack([np.eye(D + M)] * D))),
    "Prior": (
        c.Prior, dict(theta=THETA, covariances=np.stack([np.eye(THETA.shape[1])] * D)),
    ),
    "Prior.law": (c.Prior.law, dict(theta=THETA, off=0.3, sizes=np.ones(THETA.shape))),
    "Prior.nominal": (
        c.Prior.nominal,
        dict(context_map=MAP, A=SYSTEM.A, B=SYSTEM.B, context=CONTEXT, scales=np.ones(D + M),
             off=0.3),
    ),
    "Prior.knowing": (
        lambda **k: c.Prior.law(THETA, 0.3, np.ones(THETA.shape)).knowing(**k),
        dict(row=0, direction=np.ones(THETA.shape[1]), value=1.0, off=0.1),
    ),
    "QuadraticCost": (
        c.QuadraticCost, dict(Q=COST.Q, R=COST.R, N=np.zeros((H - 1, D, M)), indefinite=False),
    ),
    "Trajectory": (c.Trajectory, dict(states=TRAJECTORY.states, inputs=TRAJECTORY.inputs)),
    "Solution.cost": (SOLUTION.cost, dict(start=START)),
    "solve": (
        c.solve,
        dict(system=SYSTEM, cost=COST, check=False,
             uncertainty=c.ModelUncertainty(np.stack([np.eye(D + M)] * D))),
    ),
    "optimal_cost": (c.optimal_cost, dict(system=SYSTEM, cost=COST, start=START)),
    "policy_cost": (
        c.policy_cost,
        dict(policy=POLICY, system=SYSTEM, cost=COST, start=START,
             dither=np.stack([np.eye(M)] * (H - 1))),
    ),
    "cost_gradient": (c.cost_gradient, dict(system=SYSTEM, cost=COST, start=START)),
    "simulate": (
        c.simulate,
        dict(policy=POLICY, system=SYSTEM, start=START, rng=RNG(0), state_bound=9.0),
    ),
    "Controller": (
        c.Controller,
        dict(system=SYSTEM, cost=ENDLESS, target={"state 1": 0.0}, integral={"state 1": 0.1},
             input_bounds=(-1.0, 1.0), states=[f"state {i + 1}" for i in range(D)], constant=[]),
    ),
    "Controller.input": (
        HOLDING.input, dict(state=START, target={"state 1": 0.0})
    ),
    "Controller.set_target": (HOLDING.set_target, dict(target=[0.0])),
    "certify": (
        c.certify,
        dict(decoder=DECODER, context=CONTEXT, cost=COST, start=START, noise=np.eye(D),
             beta="determinant", delta=0.1, draws=5, bounds=False, rng=RNG(0)),
    ),
    "certify_many": (
        c.certify_many,
        dict(decoder=DECODER, contexts=[CONTEXT], cost=COST, start=START, beta=2.0, delta=0.1,
             draws=5, bounds=True, rng=RNG(0), progress=None),
    ),
    "rank_candidates": (
        c.rank_candidates,
        dict(decoder=DECODER, candidates=[CONTEXT] * 2, cost=COST, start=START,
             targets=[CONTEXT], dither=0.1),
    ),
    "unexcited_directions": (
        c.unexcited_directions, dict(decoder=DECODER, names=["x", "v", "u"]),
    ),
    "trajectory_cost": (c.trajectory_cost, dict(trajectory=TRAJECTORY, cost=COST)),
    "backtest": (
        c.backtest, dict(decoder=MACHINES, cost=COST, start=START, trusted_excess=0.02),
    ),
    "fit": (
        lambda **k: c.fit(**k, workers=1),
        dict(description=CARTS, logs="a.csv", into=FITTED, strict=False, robust=False, alarm=True,
             sort=False, only=None, allow_repeats=False, quarantine=None, progress=None),
    ),
    "fit.workers": (
        c.fit, dict(description="fleet.toml", logs=["a.csv"], workers=1),
    ),
    "FleetDescription.read": (c.FleetDescription.read, dict(path="fleet.toml")),
    "FleetDescription.parse": (
        c.FleetDescription.parse,
        dict(text=TEMPLATE, name="fleet.toml", folder=Path(), targets=None, horizon=9),
    ),
    "FittedFleet.new": (c.FittedFleet.new, dict(description=CARTS)),
    "FittedFleet.merge": (
        lambda **k: c.FittedFleet.new(CARTS).merge(**k), dict(other=FITTED, allow_repeats=False),
    ),
    "FittedFleet.save": (FITTED.save, dict(path="a.fleet")),
    "FittedFleet.load": (c.FittedFleet.load, dict(path="a.fleet")),
    "StationaryCost": (
        c.StationaryCost, dict(Q=np.eye(D), R=np.eye(M), N=np.zeros((D, M)), discount=0.9),
    ),
    "StationaryCost.over": (ENDLESS.over, dict(horizon=5)),
    "StationaryPolicy": (c.StationaryPolicy, dict(gain=np.zeros((M, D)))),
    "StationaryPolicy.over": (STEADY.over, dict(steps=5)),
    "StationarySolution.cost": (c.solve(SYSTEM, ENDLESS).cost, dict(start=START)),
    "solve.endless": (
        c.solve,
        dict(system=SYSTEM, cost=ENDLESS, check=False,
             uncertainty=c.ModelUncertainty(1e-6 * np.stack([np.eye(D + M)] * D))),
    ),
    "optimal_cost.endless": (c.optimal_cost, dict(system=SYSTEM, cost=ENDLESS, start=START)),
    "policy_cost.endless": (
        c.policy_cost, dict(policy=STEADY, system=SYSTEM, cost=ENDLESS, start=START),
    ),
    "cost_gradient.endless": (c.cost_gradient, dict(system=SYSTEM, cost=ENDLESS, start=START)),
    "simulate.endless": (
        c.simulate, dict(policy=STEADY, system=SYSTEM, start=START, rng=RNG(0), steps=5),
    ),
    "certify.endless": (
        c.certify, dict(decoder=DECODER, context=CONTEXT, cost=ENDLESS, start=START, draws=5),
    ),
    "FittedFleet.design": (
        TAUGHT.design, dict(context={"mass": 2.0}, cost=ENDLESS, start=START, machine=None),
    ),
    "TimeVaryingSystem": (
        c.TimeVaryingSystem,
        dict(A=np.stack([SYSTEM.A] * (H - 1)), B=np.stack([SYSTEM.B] * (H - 1)), noise=np.eye(D)),
    ),
    "Schedule": (c.Schedule, dict(contexts=[CONTEXT] * (H - 1))),
    "Decoder.schedule": (DECODER.schedule, dict(contexts=PLANNED)),
    "ScheduleBelief.draw": (
        lambda **k: DECODER.schedule(PLANNED).draw(**k), dict(n=3, rng=RNG(0)),
    ),
    "certify.schedule": (
        c.certify,
        dict(decoder=DECODER, context=PLANNED, cost=COST, start=START, draws=5, bounds=False),
    ),
    "gain_schedule": (
        c.gain_schedule,
        dict(decoder=DECODER, contexts={"gain": (1.0, 2.0)}, cost=COST, start=START, tolerance=0.5,
             most=9, draws=5, bounds=False),
    ),
    "OutputHistory": (
        c.OutputHistory,
        dict(outputs=1, inputs=1, n=2, delay=1, input_history=2, measured=1, constant=True),
    ),
    "OutputHistory.trajectory": (
        HISTORY.trajectory, dict(outputs=np.ones((6, 1)), inputs=np.ones((5, 1)), measured=None),
    ),
    "OutputHistory.known": (HISTORY.known, dict(context_map=c.FeatureContext(["1", "gain"]))),
    "OutputHistory.cost": (HISTORY.cost, dict(Q=np.eye(1), R=np.eye(1), horizon=5, final_Q=None)),
    "OutputHistory.at_rest": (HISTORY.at_rest, dict(outputs=[1.0], inputs=[0.0], measured=None)),
    "OutputMemory.see": (
        lambda **k: HISTORY.memory().see(**k), dict(outputs=[1.0], played=None, measured=None),
    ),
    "OutputController.input": (
        lambda gain, **k: HISTORY.controller(c.StationaryPolicy(gain)).input(**k),
        dict(gain=np.zeros((1, HISTORY.state_size)), outputs=[1.0], measured=None),
    ),
    "set_threads": (c.set_threads, dict(count=1)),
}  # fmt: skip
# Records of answers, drawings and exceptions: nobody calls them with arguments of their own.
ANSWERS = {
    "Backtest", "Certificate", "CostBound", "CostGradient", "Episode", "Output", "Plan", "Solution",
    "ContextMap", "Status", "Strategy", "ContextError", "ContextualLQRError", "FormatError",
    "InputError", "UnsolvableError", "plot_backtest", "plot_certificates", "plot_closed_loop",
    "plot_decoder", "plot_tradeoff", "StationarySolution", "GainSchedule", "Dynamics",
    "DynamicsBelief", "PathBacktest", "PathCalibration", "PathCertificate", "TrajectoryPolicy",
    "TrajectorySolution",
}  # fmt: skip


class Stubborn:
    """Refuses everything."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no")

    def __repr__(self) -> str:
        raise RuntimeError("no")


LOOP: list[Any] = []
LOOP.append(LOOP)
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2, 7, 10**10, 10**400, -(10**400), 0.0, -0.0, 0.5, 1e-320, 1e308,
    -1e308, float("nan"), float("inf"), 1j, Decimal("0.5"), "", "a", "gain", "\x1b[31m", b"x", [],
    (), {}, set(), [[]], [[1.0], [1.0, 2.0]], [1, "a"], [None], LOOP, {"gain": None},
    {"gain": "1"}, {"gain": 1e308}, {"gain": [1.0, 2.0]}, {"mass": 1.0}, {1: 2}, {"gain": True},
    [{"gain": 1.0}, {}], object(), Stubborn(), iter([1.0]), range(3),
    datetime.date(2024, 1, 1), np.array([]), np.zeros((0, 2)), np.zeros((2, 0)), np.zeros(()),
    np.zeros((2, 2, 2)), np.array([np.nan, 1.0]), np.array([True, False]),
    np.array(["a", "b"]), np.array([None, 1.0]), np.array(["2024-01-01"], "M8[D]"),
    np.array([1j, 2.0]), np.ma.array([1.0, 2.0], mask=[True, False]),
    np.ma.masked_all((2, 2)), np.float32(2.0), np.int64(3), np.bool_(True), np.longdouble(0.5),
    np.zeros(2, [("a", float)]), np.eye(2, dtype=np.float16), np.array([1e200, 1e-200]),
    np.full((3, 3), 1e308), Path("no/where"), Path(), io.StringIO("x"),
    MAP, COST, SYSTEM, POLICY, TRAJECTORY, DECODER, SET, CONTEXT, RNG(5), c.ConstantBeta(1.0),
    (TRAJECTORY.states, TRAJECTORY.inputs), [TRAJECTORY], np.random,
]  # fmt: skip


def bent(value: Any, how: int) -> Any:
    """An array that is nearly right."""
    array = np.array(value)
    return [
        array.T, array[..., :-1], array[None], -array, array * 1e308, array * 1e-308,
        array + np.nan, array.astype(complex), array.astype(str), array.astype(object),
        array.astype(int), np.ma.array(array, mask=True), array.tolist(), array[::-1],
        array.ravel(), array.astype(bool),
    ][how % 16]  # fmt: skip


@st.composite
def arguments(draw: st.DrawFn) -> tuple[str, dict[str, Any], list[str]]:
    """A call, its arguments, and which of them are odd."""
    name = draw(st.sampled_from(sorted(CALLS)))
    given_ = dict(CALLS[name][1])
    changed = draw(st.lists(st.sampled_from(sorted(given_)), min_size=1, max_size=2, unique=True))
    for one in changed:
        if isinstance(given_[one], np.ndarray) and draw(st.booleans()):
            given_[one] = bent(given_[one], draw(st.integers(0, 15)))
        else:
            given_[one] = ODD[draw(st.integers(0, len(ODD) - 1))]
    return name, given_, changed


def prepare() -> None:
    """The files that calls read, as they should be."""
    for name, content in good_files().items():
        Path(name).write_bytes(content)


@cache
def good_files() -> dict[str, bytes]:
    with TemporaryDirectory() as folder:
        there = Path(folder)
        taught().save(there / "an.agent")
        DECODER.save(there / "a.decoder")
        FITTED.save(there / "a.fleet")
        (there / "fleet.toml").write_text(TEMPLATE)
        write(cart_rows([0.7, 1.3, 2.0], steps=20), there / "a.csv")
        return {one.name: one.read_bytes() for one in there.iterdir()}


@contextmanager
def bounded(seconds: int = 20, room: int = 6 << 30) -> Iterator[None]:
    """An end to what would take for ever, or all memory; others may be busy, so time is our own."""

    def late(*_: object) -> None:
        raise AssertionError(f"it took more than {seconds} seconds")

    limits = resource.getrlimit(resource.RLIMIT_AS)
    clocks = [(signal.ITIMER_PROF, signal.SIGPROF, seconds), (signal.ITIMER_REAL, signal.SIGALRM,
              20 * seconds)]  # fmt: skip
    before = [signal.signal(number, late) for _, number, _ in clocks]
    for clock, _, most in clocks:
        signal.setitimer(clock, most)
    resource.setrlimit(resource.RLIMIT_AS, (room, limits[1]))
    try:
        yield
    finally:
        for (clock, number, _), handler in zip(clocks, before, strict=True):
            signal.setitimer(clock, 0)
            signal.signal(number, handler)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def failure(name: str, given_: dict[str, Any]) -> BaseException | None:
    """What came out that is neither an answer nor an error of ours."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            CALLS[name][0](**given_)
        except (c.ContextualLQRError, MemoryError) as error:
            return None if str(error).strip() or isinstance(error, MemoryError) else error
        except Exception as error:
            return error
    return None


def test_no_name_is_forgotten() -> None:
    assert {name.split(".")[0] for name in CALLS} | ANSWERS == set(c.__all__) | {"ContextMap"}


def test_every_call_is_good_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    prepare()
    for name in CALLS:
        CALLS[name][0](**CALLS[name][1])


@pytest.mark.slow
def test_odd_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    @given(arguments())
    @settings(campaign(100))
    def one(case: tuple[str, dict[str, Any], list[str]]) -> None:
        prepare()
        name, given_, changed = case
        with bounded():
            found = failure(name, given_)
        if found is not None:
            raise AssertionError(f"{name}({', '.join(changed)}): {found!r}") from found

    one()
