"""Tokens over HTTP, for administrators."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path

from contextual_lqr.study.service import bodies
from contextual_lqr.study.service.answers import Answer
from contextual_lqr.study.service.auth import Caller, authorized
from contextual_lqr.study.tokens import Token, Tokens

router = APIRouter(prefix="/api/{study}/tokens", default_response_class=Answer)
Administrator = Annotated[Caller, authorized("administrator")]


@router.post("", response_model=bodies.NewToken)
def create_token(caller: Administrator, body: bodies.TokenBody) -> Any:
    """Make a token. From the first one on, nobody gets in without."""
    made, text = _tokens(caller).create(body.role, body.machine, body.name)
    return Answer({**_facts(made), "token": text})


@router.get("", response_model=list[bodies.TokenFacts])
def list_tokens(caller: Administrator) -> Any:
    """Every token, revoked or not, oldest first."""
    return Answer([_facts(one) for one in _tokens(caller).all()])


@router.delete("/{id}", response_model=bodies.TokenFacts)
def revoke_token(caller: Administrator, id: Annotated[str, Path(pattern="^[0-9a-f]{16}$")]) -> Any:
    """From now on the token is none."""
    return Answer(_facts(_tokens(caller).revoke(id)))


def _tokens(caller: Caller) -> Tokens:
    return Tokens(caller.study._log)


def _facts(token: Token) -> dict[str, Any]:
    return {name: value for name, value in vars(token).items() if name != "digest"}
