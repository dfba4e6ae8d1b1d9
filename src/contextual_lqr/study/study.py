"""A study: what one agent is to one process, for a whole fleet that asks and tells at once.

    study = Study.open("sqlite:///fleet.db", fleet)
    plan = study.ask({"mass": 2.0}, machine="M-011")     # what to play
    trajectory = ...                                     # play it: inputs plan.input(step, state)
    study.tell(plan, trajectory)                         # what came of it, today or tomorrow

Evidence about Θ adds up, in whatever order it comes: a late, a repeated or an unasked `tell` is
welcome. All is in the log (`log.py`); what is believed is a fold over it (`learner.py`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.certificates.certificate import Certificate
from contextual_lqr.certificates.certify import certify
from contextual_lqr.checks import in_words, require, shown
from contextual_lqr.context import Dynamics
from contextual_lqr.display import Displayed
from contextual_lqr.errors import InputError
from contextual_lqr.lqr.problem import LinearPolicy, QuadraticCost, Trajectory
from contextual_lqr.planning.agent import Agent
from contextual_lqr.planning.episode import Episode, as_state
from contextual_lqr.study import encoding, log
from contextual_lqr.study.asking import asks_out, generator, plan_beside
from contextual_lqr.study.fleets import agent_of, described_agent, description_of
from contextual_lqr.study.forking import Lock
from contextual_lqr.study.learner import Learner, agent_bytes
from contextual_lqr.study.records import Asked, StudyStatus, Told
from contextual_lqr.study.refusals import (
    as_key,
    own_parts,
    require_labels,
    require_same,
    require_usable,
)
from contextual_lqr.study.wire import exported

LEASE = 3600.0


class Study(Displayed):
    """A learner that threads, processes and hosts share; `Study.open` opens or starts one."""

    def __init__(self, store: log.Log, learner: Learner) -> None:
        self._log, self._learner, self._lock = store, learner, Lock()

    @classmethod
    def open(cls, url: str, fleet: Any = None, **own: Any) -> Study:
        """Open the study at an address, or start one there.

        Parameters
        ----------
        url : str
            Where its log is: sqlite:///fleet.db, a file that is created if there is none, or
            postgresql://user@host/database for many hosts. Or where it is served:
            https://host:8123/fleet, with `token=`, unless the environment has it as
            CONTEXTUAL_LQR_TOKEN.
        fleet : Agent, Fleet, FleetDescription or path, optional
            Whose study it is: an agent with all its options, one of the simulated fleets, or a
            description as `contextual-lqr new` writes it. Needed to start a study. If one exists,
            it must be of the same fleet.
        **own
            `context_map`, `strategy`, `beta` or `incumbent` that are made of functions or classes
            of your own, which no log can hold; as for `Agent.load`.

        Returns
        -------
        Study
            It has learnt everything in the log.

        Raises
        ------
        InputError
            If there is no study and no fleet is given, or the study is of another fleet.
        StoreError
            If the store cannot be reached.

        Examples
        --------
        >>> cost = clqr.QuadraticCost(Q=[np.eye(1)] * 5, R=[np.eye(1)] * 4)
        >>> agent = clqr.Agent(clqr.FeatureContext(["1", "1/mass"]), cost, [1.0])
        >>> study = clqr.Study.open("sqlite://", agent)  # in memory; a file is sqlite:///fleet.db
        >>> plan = study.ask({"mass": 2.0}, machine="M-011")
        >>> machine = clqr.LinearSystem([[0.9]], [[0.5]], noise=[[1e-4]])
        >>> played = clqr.simulate(plan.policy, machine, [1.0], np.random.default_rng(0))
        >>> study.tell(plan, played)
        Told(number=1, new=True)
        >>> study.tell(plan, played)
        Told(number=1, new=False)
        """
        require(isinstance(url, str), f"url must look like sqlite:///fleet.db, not {shown(url)}")
        if url.startswith(("http://", "https://")):
            from contextual_lqr.study.client import StudyClient

            require(fleet is None, "a served study has its fleet: open it without one")
            return in_words(StudyClient)(url, **own)
        agent, text = (None, None) if fleet is None else agent_of(fleet)
        require(
            agent is None or not isinstance(agent.decoder.context_map, Dynamics),
            "a study keeps plans of linear machines only: for Dynamics, use one Agent",
        )
        store = log.Log(url)
        try:
            return cls._opened(store, agent, text, own)
        except BaseException:
            store.close()
            raise

    @classmethod
    def _opened(
        cls, store: log.Log, agent: Agent | None, text: str | None, own: dict[str, Any]
    ) -> Study:
        if not store.found():
            require(agent is not None, f"there is no study at {store.name}: give its fleet")
            assert agent is not None
            store.create(agent_bytes(agent), text)
        if agent is not None:
            require_same(agent, store)
        learner = Learner(
            store, own_parts(own, agent), lambda: agent or described_agent(store.description)
        )
        learner.catch_up()
        return cls(store, learner)

    # -- one episode -------------------------------------------------------------------------------

    def ask(
        self,
        context: Any,
        machine: str | None = None,
        *,
        start: ArrayLike | None = None,
        key: str | None = None,
        lease: float = LEASE,
        worker: str | None = None,
    ) -> Asked:
        """A plan for the machine with this context.

        It accounts for what is asked and not told yet, so that machines that play at once do not
        all probe the same.

        Parameters
        ----------
        context
            The machine's context.
        machine : str, optional
            Its label.
        start : array_like, (d,), optional
            Where the episode starts, if that is not the fleet's start.
        key : str, optional
            What the ask is known by; asking again under the same key gives the same plan.
        lease : float
            For how many seconds it is waited for. What comes later is welcome all the same.
        worker : str, optional
            Who asks.

        Returns
        -------
        Asked
            What to play.
        """
        named, key = key is not None, uuid.uuid4().hex if key is None else as_key(key)
        require(0 < lease < np.inf, f"lease must be a number of seconds, not {lease!r}")
        text = encoding.context_text(context)
        require_labels(machine=machine, worker=worker)
        if named and (before := self._log.ask(key)) is not None:
            return self._asked_before(before, text, machine)
        with self._lock:
            self._learner.keep_up()
            agent = self._learner.agent
            begin = agent.start if start is None else as_state(start, agent.cost.state_size)
            now = time.time()
            out = asks_out(agent, self._log, now)
            plan = plan_beside(agent, context, machine, begin, key, out)
        content = encoding.plan_bytes(plan, begin)
        ask = log.Ask(key, machine, text, content, worker, now, now + lease)
        if not self._log.add_ask(ask):  # somebody else was quicker with the same key
            return self._asked_before(self._log.ask(key) or ask, text, machine)
        return _asked(ask)

    def tell(
        self,
        plan_or_context: Any,
        trajectory: Trajectory,
        machine: str | None = None,
        *,
        key: str | None = None,
        worker: str | None = None,
    ) -> Told:
        """Add an episode to the log: all of it, on disk, before this returns.

        An episode that is there already is not counted again, and is no error; another one under
        its key is refused.

        Parameters
        ----------
        plan_or_context
            What `ask` gave, its key, or, for an episode that nobody asked for, the context.
        trajectory : Trajectory
            What came of it, however long it was.
        machine : str, optional
            The label of the machine that played it; by default the plan's.
        key : str, optional
            What the episode is known by; by default a digest of its contents.
        worker : str, optional
            Who tells.

        Returns
        -------
        Told
            Its number in the log, and whether it is new.
        """
        ask = None
        if isinstance(plan_or_context, Asked):
            ask, context = plan_or_context.key, plan_or_context.context
            machine = plan_or_context.machine if machine is None else machine
        elif isinstance(plan_or_context, str):
            ask, found = plan_or_context, self._log.ask(plan_or_context)
            require(found is not None, f"nobody asked under the key {shown(plan_or_context)}")
            assert found is not None
            context = encoding.context_of(found.context)
            machine = found.machine if machine is None else machine
        else:
            context = getattr(plan_or_context, "context", plan_or_context)
        require_labels(machine=machine, worker=worker)
        text = encoding.context_text(context)
        require_usable(self._learner.agent, context, trajectory)
        content = encoding.episode_bytes(trajectory)
        name = encoding.episode_key(text, machine, content) if key is None else as_key(key)
        cost = encoding.cost_and_steps(trajectory, self.cost)
        told = log.Episode(0, name, ask, machine, text, content, worker, time.time(), *cost)
        number, new = self._log.append(told)
        if self._learner.outgrown(number):
            with self._lock, suppress(log.StoreError):  # it is told; this can wait
                self._learner.fold_for_all(number)
        return Told(number, new)

    @contextmanager
    def episode(
        self,
        context: Any,
        adapt: Literal["episode", "step"] = "episode",
        *,
        machine: str | None = None,
        start: ArrayLike | None = None,
        worker: str | None = None,
    ) -> Iterator[Episode]:
        """A live episode, like `Agent.episode`; leaving the block tells what was played."""
        known = isinstance(adapt, str) and adapt in ("episode", "step")
        require(known, f'adapt must be "episode" or "step", not {shown(adapt)}')
        asked = self.ask(context, machine, start=start, worker=worker)
        with self._lock:
            agent = self._twin(generator(asked.key))
        problem = agent._problem(context, start, None, machine)
        live = Episode(agent, context, adapt, problem)
        if adapt == "episode":
            live.plan = asked
        try:
            yield live
        except BaseException:
            with suppress(InputError):  # what went wrong in the block is what must be seen
                self._tell_played(asked, live, worker)
            raise
        self._tell_played(asked, live, worker)

    # -- what was learnt ---------------------------------------------------------------------------

    @property
    def decoder(self) -> Decoder:
        """What the whole log says about Θ; a copy, which learns nothing more."""
        with self._lock:
            self._learner.catch_up()
            return self._learner.agent.decoder.copy()

    @property
    def description(self) -> str | None:
        """The text of the fleet's description, if the study was started from one."""
        return self._log.description

    @property
    def cost(self) -> QuadraticCost:
        """The cost of an episode."""
        return self._learner.agent.cost

    def controller(self, context: Any, machine: str | None = None) -> LinearPolicy:
        """The policy of the current belief, for a machine that need never have been tried."""
        with self._lock:
            self._learner.catch_up()
            found: LinearPolicy = self._learner.agent.controller(context, machine)
        return found

    def certify(self, context: Any, machine: str | None = None, **options: Any) -> Certificate:
        """The controller for a machine, and how far to trust it; options as for `certify`.

        Inputs are clipped to the agent's limits, unless others are given, and states and inputs
        have the names of the fleet's description.
        """
        agent, fleet = self._learner.agent, description_of(self._log.description)
        own: dict[str, Any] = {"input_bounds": agent.input_bounds}
        if fleet is not None:
            own = {"input_bounds": fleet.input_bounds, "states": fleet.state_names}
        own |= options
        return certify(self.decoder, context, agent.cost, agent.start, machine=machine, **own)

    def status(self) -> StudyStatus:
        """How the study stands."""
        with self._lock:
            self._learner.catch_up()
            decoder = self._learner.agent.decoder
            rows, repeats = decoder.rows, decoder.repeats
        now, asks = time.time(), self._log.open_asks()
        late = [one for one in asks if one.expires_at < now]
        told = {one.machine or "no label": one.episodes for one in self._log.machines()}
        return StudyStatus(
            self._log.name,
            self._log.count(),
            rows,
            repeats,
            len(asks) - len(late),
            len(late),
            dict(sorted(told.items())),
            tuple(one.machine or "no label" for one in late),
        )

    # -- the log -----------------------------------------------------------------------------------

    def export(self) -> Iterator[dict[str, Any]]:
        """Every episode in order, in a form that JSON can hold; `import_` takes it in again."""
        for one in self._log.episodes():
            yield exported(one)

    def import_(self, record: Mapping[str, Any]) -> Told:
        """Take in one episode that `export` gave, here or elsewhere; repeats count once."""
        try:
            played = Trajectory(record["states"], record["inputs"])
            context, key = record["context"], record["key"]
        except (KeyError, TypeError) as error:
            raise InputError(f"this is not an episode as export writes it: {error}") from None
        return self.tell(
            context, played, record.get("machine"), key=key, worker=record.get("worker")
        )

    def compact(self) -> int:
        """Write a snapshot, and drop asks that are answered or a week late; return how many."""
        with self._lock:
            self._learner.catch_up()
            self._learner.leave_snapshot()
        return self._log.compact(time.time() - 7 * 24 * 3600)

    def close(self) -> None:
        """Close all connections; what was told is in the log."""
        self._log.close()

    def __enter__(self) -> Study:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _facts(self) -> dict[str, object]:
        with self._lock:
            learnt = self._learner.agent._facts()
        return {"store": self._log.name, **learnt}

    # -- inside ------------------------------------------------------------------------------------

    def _twin(self, rng: np.random.Generator) -> Agent:
        """The agent as it is now, for one episode, with random numbers of its own."""
        agent = self._learner.agent
        twin = object.__new__(type(agent))
        vars(twin).update(vars(agent), decoder=agent.decoder.copy(), _rng=rng)
        return twin

    def _tell_played(self, asked: Asked, live: Episode, worker: str | None) -> None:
        if (played := live.trajectory) is not None:
            self.tell(asked, played, worker=worker)

    def _asked_before(self, ask: log.Ask, context: str, machine: str | None) -> Asked:
        require(
            (ask.context, ask.machine) == (context, machine),
            f"the key {shown(ask.key)} belongs to another ask, for the context {ask.context} "
            f"and the machine {ask.machine!r}",
        )
        return _asked(ask)


def _asked(ask: log.Ask) -> Asked:
    fields, _ = encoding.plan_fields(ask.content, ask.context, f"ask {ask.key}")
    return Asked(**fields, machine=ask.machine, key=ask.key)
