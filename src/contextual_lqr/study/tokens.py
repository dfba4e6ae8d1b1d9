"""Tokens: who may do what in a study.

A token is `clqr_` and the name it is kept under, `_`, and 256 random bits. The store keeps their
SHA-256 only: bits that are all random cannot be guessed, so that no slower digest is needed, and
whoever reads the store learns no token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from contextual_lqr.study.study import Study

Role = Literal["watch", "machine", "engineer", "administrator"]
ROLES: tuple[Role, ...] = get_args(Role)
"""What may be granted; each includes those before it."""


@dataclass(frozen=True)
class Token:
    """What the store keeps of a token; `machine` is whose it is, if it is of a machine."""

    id: str
    digest: str
    role: Role
    machine: str | None
    note: str
    created_at: float
    revoked_at: float | None = None


def has_tokens(study: Study) -> bool:
    """Whether a token was ever made in this study: from then on, one is needed."""
    return False


def holder(study: Study, given: str) -> Token | None:
    """The token that this text is, unless it is none, or revoked."""
    return None
