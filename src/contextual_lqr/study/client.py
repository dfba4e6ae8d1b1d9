"""A study that is served elsewhere, with the interface of one that is here."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.certificates.certificate import Certificate
from contextual_lqr.checks import as_numbers, require, shown
from contextual_lqr.lqr.problem import LinearPolicy, QuadraticCost, Trajectory
from contextual_lqr.planning.agent import Agent
from contextual_lqr.study import encoding
from contextual_lqr.study.calls import Service
from contextual_lqr.study.forking import Lock
from contextual_lqr.study.learner import agent_from
from contextual_lqr.study.records import Asked, StudyStatus, Told
from contextual_lqr.study.refusals import as_key, own_parts
from contextual_lqr.study.study import LEASE, Study
from contextual_lqr.study.wire import NEXT, record_of

_PATIENCE = 60.0
_CERTIFY = ("beta", "delta", "draws", "bounds", "noise", "input_bounds", "states")


class StudyClient(Study):
    """A study at http(s)://host:port/study; `Study.open` opens one.

    Calls are repeated until the service answers, for `patience` seconds. That is safe: asks are
    made under keys that are chosen here, and an episode that is told twice is counted once.
    """

    def __init__(
        self, url: str, token: str | None = None, patience: float = _PATIENCE, **own: Any
    ) -> None:
        self._service, self._own = Service(url, token, patience), own_parts(own, None)
        self._lock = Lock()

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
        """A plan for the machine with this context; as `Study.ask`."""
        body = {
            "context": _context(context),
            "machine": machine,
            "start": None if start is None else as_numbers("start", start, "(d,)", 1).tolist(),
            "key": uuid.uuid4().hex if key is None else as_key(key),
            "lease": float(lease),
            "worker": worker,
        }
        asked: Asked = record_of(self._call("POST", "/ask", body), context=context)
        return asked

    def tell(
        self,
        plan_or_context: Any,
        trajectory: Trajectory,
        machine: str | None = None,
        *,
        key: str | None = None,
        worker: str | None = None,
    ) -> Told:
        """Add an episode to the log; as `Study.tell`."""
        require(
            isinstance(trajectory, Trajectory),
            f"trajectory must be a Trajectory, not {shown(trajectory)}",
        )
        body: dict[str, Any] = {
            "states": trajectory.states.tolist(),
            "inputs": trajectory.inputs.tolist(),
            "machine": machine,
            "key": None if key is None else as_key(key),
            "worker": worker,
        }
        if isinstance(plan_or_context, str):
            body["ask"] = as_key(plan_or_context)
        else:
            body["context"] = _context(getattr(plan_or_context, "context", plan_or_context))
        if isinstance(plan_or_context, Asked):
            body["ask"] = plan_or_context.key
            body["machine"] = plan_or_context.machine if machine is None else machine
        return Told(**self._call("POST", "/tell", body))

    # -- what was learnt ---------------------------------------------------------------------------

    @property
    def decoder(self) -> Decoder:
        """What the whole log says about Θ; a copy, which learns nothing more."""
        return self._agent().decoder

    @property
    def cost(self) -> QuadraticCost:
        """The cost of an episode."""
        return self._agent().cost

    @property
    def description(self) -> str | None:
        """The text of the fleet's description, if the study was started from one."""
        found: str | None = self._call("GET", "/description")["description"]
        return found

    def controller(self, context: Any, machine: str | None = None) -> LinearPolicy:
        """The policy of the current belief; as `Study.controller`."""
        body = {"context": _context(context), "machine": machine}
        found: LinearPolicy = record_of(self._call("POST", "/controller", body))
        return found

    def certify(self, context: Any, machine: str | None = None, **options: Any) -> Certificate:
        """The controller for a machine, and how far to trust it; as `Study.certify`."""
        odd = sorted(set(options) - set(_CERTIFY))
        require(not odd, f"a served study certifies without {', '.join(odd)}: use its decoder")
        given = {name: _listed(one) for name, one in options.items() if one is not None}
        body = {"context": _context(context), "machine": machine, **given}
        found: Certificate = record_of(self._call("POST", "/certify", body), context=context)
        return found

    def status(self) -> StudyStatus:
        """How the study stands."""
        found: StudyStatus = record_of(self._call("GET", "/status"), store=self._service.name)
        return found

    # -- the log -----------------------------------------------------------------------------------

    def export(self) -> Iterator[dict[str, Any]]:
        """Every episode in order, in a form that JSON can hold; `import_` takes it in again."""
        after = "0"
        while (page := self._service.call("GET", f"/export?after={after}")).content:
            for line in page.content.splitlines():
                yield json.loads(line)
            after = page.headers[NEXT]

    def import_(self, record: Mapping[str, Any]) -> Told:
        """Take in one episode that `export` gave, here or elsewhere; repeats count once."""
        return Told(**self._call("POST", "/import", dict(record)))

    def compact(self) -> int:
        """Write a snapshot, and drop asks that are answered or a week late; return how many."""
        return int(self._call("POST", "/compact")["forgotten"])

    def close(self) -> None:
        """End all connections; what was told is in the log."""
        self._service.close()

    def _facts(self) -> dict[str, object]:
        return {"store": self._service.name, **self._agent()._facts()}

    # -- inside ------------------------------------------------------------------------------------

    def _call(self, method: str, route: str, body: Any = None) -> Any:
        return self._service.call(method, route, body).json

    def _agent(self) -> Agent:
        content = self._service.call("GET", "/agent").content
        return agent_from(content, self._service.name, self._own)

    def _twin(self, rng: np.random.Generator) -> Agent:
        """The agent as it is now, for one episode, with random numbers of its own."""
        agent = self._agent()
        agent._rng = rng
        return agent


def _context(context: Any) -> Any:
    """A context as JSON, or refused as a study here would."""
    return json.loads(encoding.context_text(context))


def _listed(value: Any) -> Any:
    return np.asarray(value).tolist() if isinstance(value, np.ndarray | list | tuple) else value
