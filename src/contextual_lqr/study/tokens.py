"""Tokens: who may do what in a study, over HTTP.

A token is `clqr_`, the id it is known by, `_`, and 256 random bits. The store keeps the SHA-256 of
those only, so that whoever reads it learns no token. A slow digest is for secrets that people
think of; these can be guessed at no speed.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from contextual_lqr.checks import require, shown
from contextual_lqr.study.log import Log
from contextual_lqr.study.refusals import require_labels
from contextual_lqr.study.schema import sql
from contextual_lqr.study.schema import tokens as _tokens

Role = Literal["watch", "machine", "engineer", "administrator"]
ROLES: tuple[Role, ...] = get_args(Role)
"""What may be granted; each includes those before it."""

_FORM = re.compile(r"clqr_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")


@dataclass(frozen=True)
class Token:
    """What the store keeps of a token; `machine` is whose it is, if it is of a machine."""

    id: str
    name: str
    role: Role
    machine: str | None
    digest: str
    created_at: float
    revoked_at: float | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """What may be shown of it."""
        return {name: value for name, value in vars(self).items() if name != "digest"}


class Tokens:
    """The tokens of the study with this log; threads may share it."""

    def __init__(self, log: Log) -> None:
        self._log, self._database = log, log.database
        self._some = False

    def any(self) -> bool:
        """Whether a token was ever made, revoked since or not: from then on, one is needed."""
        if not self._some:
            with self._database.reading() as now:
                self._some = now.execute(sql.select(_tokens.c.id).limit(1)).first() is not None
        return self._some

    def valid(self) -> bool:
        """Whether there is a token that is not revoked."""
        return any(one.revoked_at is None for one in self.all())

    def all(self) -> list[Token]:
        """Every token, revoked or not, oldest first."""
        with self._database.reading() as now:
            rows = now.execute(sql.select(_tokens).order_by(_tokens.c.created_at, _tokens.c.id))
            return [Token(**row._mapping) for row in rows]

    def create(
        self, role: str, machine: str | None = None, name: str | None = None
    ) -> tuple[Token, str]:
        """Make a token; what is kept of it, and its text, which nobody can find again.

        The name is for people: who has it; the machine or the role, unless given.
        """
        require(role in ROLES, f"role must be one of {', '.join(ROLES)}, not {shown(role)}")
        require_labels(machine=machine, name=name)
        if role == "machine":
            require(machine, "a token of the role machine is for one machine: give its label")
        else:
            require(machine is None, f"a token of the role {role} is not for one machine")
        id_, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        known = cast(Role, role)
        made = Token(id_, name or machine or role, known, machine, _digest(secret), time.time())
        with self._database.writing() as now:
            now.execute(sql.insert(_tokens).values(vars(made)))
        return made, f"clqr_{id_}_{secret}"

    def revoke(self, id_: str) -> Token:
        """From now on the token is none; the token that it was."""
        here = _tokens.c.id == id_
        with self._database.writing() as now:
            row = now.execute(sql.select(_tokens).where(here)).first()
            require(row is not None, f"there is no token {shown(id_)} in this study")
            now.execute(
                sql.update(_tokens)
                .where(here & _tokens.c.revoked_at.is_(None))
                .values(revoked_at=time.time())
            )
        return Token(**row._mapping)

    def holder(self, given: str) -> Token | None:
        """The token that this text is; nothing if it is none, or revoked."""
        if (parts := _FORM.fullmatch(given)) is None:
            return None
        with self._database.reading() as now:
            row = now.execute(sql.select(_tokens).where(_tokens.c.id == parts[1])).first()
        if row is None or row.revoked_at is not None:
            return None
        same = hmac.compare_digest(row.digest, _digest(parts[2]))
        return Token(**row._mapping) if same else None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
