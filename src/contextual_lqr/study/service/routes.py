"""Routes of the service, and the verbs of its studies.

They are functions, not coroutines: threads run them. Those of the page are in `watch_routes.py`.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Path, Query, Request, Response
from fastapi.responses import PlainTextResponse

from contextual_lqr.belief.decoder_file import FORMAT_VERSION
from contextual_lqr.errors import InputError
from contextual_lqr.files import packed
from contextual_lqr.lqr.problem import Trajectory
from contextual_lqr.study import encoding
from contextual_lqr.study.learner import agent_bytes
from contextual_lqr.study.service import bodies
from contextual_lqr.study.service.auth import SCHEME, Caller, authorized
from contextual_lqr.study.service.errors import Answer, Lines, Numbers
from contextual_lqr.study.tokens import Tokens
from contextual_lqr.study.wire import NEXT, exported, plain

router = APIRouter(default_response_class=Answer)
Watcher = Annotated[Caller, authorized("watch")]
Machine = Annotated[Caller, authorized("machine")]
Engineer = Annotated[Caller, authorized("engineer")]
Administrator = Annotated[Caller, authorized("administrator")]
_PAGE = 8_000_000  # characters after which a page of episodes ends


@router.get("/health", response_model=bodies.Health)
def health() -> Any:
    """Whether the service runs."""
    return Answer({"status": "ok"})


@router.get("/metrics", response_class=PlainTextResponse, dependencies=[SCHEME])
def metrics(request: Request) -> Any:
    """Counts for Prometheus; of studies, those that the token is of."""
    episodes = {
        name: float(caller.study._log.count()) for name, caller in request.scope["callers"].items()
    }
    return request.app.state.metrics.text({"episodes": episodes})


@router.get("/api", response_model=bodies.Studies, dependencies=[SCHEME])
def studies(request: Request) -> Any:
    """The studies that the token is of."""
    return Answer({"studies": sorted(request.scope["callers"])})


@router.post("/api/{study}/ask", response_model=bodies.PlanAnswer)
def ask(caller: Machine, body: bodies.AskBody) -> Any:
    """A plan for a machine; asking again under the same key gives the same plan."""
    asked = caller.study.ask(
        body.context,
        caller.acting_for(body.machine),
        start=body.start,
        key=body.key,
        lease=body.lease,
        worker=body.worker or caller.name or None,
    )
    return Answer(plain(asked))


@router.post("/api/{study}/tell", response_model=bodies.ToldAnswer)
def tell(caller: Machine, body: bodies.TellBody) -> Any:
    """An episode; it is on the disk before this answers, and telling it again changes nothing."""
    machine, about = caller.acting_for(body.machine), body.context
    asked = None if body.ask is None else caller.study._log.ask(body.ask)
    if asked is not None:
        if caller.role == "machine" and asked.machine != caller.machine:
            raise HTTPException(403, f"this token is only for the machine {caller.machine!r}")
        if about is not None and encoding.context_text(about) != asked.context:
            raise InputError(f"the ask {body.ask} is for another context, {asked.context}")
        about = asked.key
    elif about is None and body.ask is not None:
        raise InputError(f"nobody asked under the key {body.ask!r} in this study")
    elif isinstance(about, str):
        raise InputError("a context cannot be text: give the key of an ask as ask")
    told = caller.study.tell(
        about,
        Trajectory(body.states, body.inputs),
        machine,
        key=body.key,
        worker=body.worker or caller.name or None,
    )
    return Answer(told._asdict())


@router.post("/api/{study}/controller", response_model=bodies.PolicyAnswer)
def controller(caller: Watcher, body: bodies.MachineBody) -> Any:
    """The policy of the current belief, for a machine that need never have been tried."""
    return Answer(plain(caller.study.controller(body.context, body.machine)))


@router.post("/api/{study}/certify", response_model=bodies.CertificateAnswer)
def certify(caller: Watcher, body: bodies.CertifyBody) -> Any:
    """The controller of a machine, and how far to trust it."""
    given = body.model_dump(exclude={"context", "machine"}, exclude_none=True)
    return Answer(plain(caller.study.certify(body.context, body.machine, **given)))


@router.get("/api/{study}/status", response_model=bodies.StatusAnswer)
def status(caller: Watcher, study: str) -> Any:
    """How the study stands."""
    return Answer(plain(caller.study.status()) | {"store": study})


@router.get("/api/{study}/description", response_model=bodies.Description)
def description(caller: Watcher) -> Any:
    """The text of the fleet's description, if the study was started from one."""
    return Answer({"description": caller.study.description})


@router.get("/api/{study}/export", response_class=Lines)
def export(
    caller: Engineer,
    after: Annotated[int, Query(ge=0, lt=2**31)] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> Response:
    """Episodes after a number, in order, one a line; Next-After is what to ask for next."""
    lines, size = [], 0
    for one in caller.study._log.after(after, limit):
        lines.append(json.dumps(exported(one)) + "\n")
        after, size = one.number, size + len(lines[-1])
        if size > _PAGE:
            break
    return Lines("".join(lines), headers={NEXT: str(after)})


@router.post("/api/{study}/import", response_model=bodies.ToldAnswer)
def import_(caller: Engineer, body: bodies.EpisodeRecord) -> Any:
    """Take in one episode that was exported, here or elsewhere; once, however often."""
    return Answer(caller.study.import_(body.model_dump())._asdict())


@router.get("/api/{study}/agent", response_class=Numbers)
def agent(caller: Machine) -> Response:
    """What was learnt, as the file that `Agent.load` reads."""
    study = caller.study
    with study._lock:
        study._learner.catch_up()
        return Numbers(agent_bytes(study._learner.agent))


@router.get("/api/{study}/decoder", response_class=Numbers)
def decoder(caller: Machine) -> Response:
    """What was learnt of the fleet, as the file that `Decoder.load` reads."""
    return Numbers(packed("decoder", FORMAT_VERSION, *caller.study.decoder.state()))


@router.post("/api/{study}/compact", response_model=bodies.Forgotten)
def compact(caller: Administrator) -> Any:
    """Write a snapshot, and forget asks that are told or a week late."""
    return Answer({"forgotten": caller.study.compact()})


@router.post("/api/{study}/tokens", response_model=bodies.NewToken)
def create_token(caller: Administrator, body: bodies.TokenBody) -> Any:
    """Make a token. From the first one on, nobody gets in without."""
    made, text = Tokens(caller.study._log).create(body.role, body.machine, body.name)
    return Answer({**made.facts, "token": text})


@router.get("/api/{study}/tokens", response_model=list[bodies.TokenFacts])
def list_tokens(caller: Administrator) -> Any:
    """Every token, revoked or not, oldest first."""
    return Answer([one.facts for one in Tokens(caller.study._log).all()])


@router.delete("/api/{study}/tokens/{id}", response_model=bodies.TokenFacts)
def revoke_token(caller: Administrator, id: Annotated[str, Path(pattern="^[0-9a-f]{16}$")]) -> Any:
    """From now on the token is none."""
    return Answer(Tokens(caller.study._log).revoke(id).facts)
