"""Who calls, and what they may.

    watch          see how the study stands: status, controllers, certificates, the page
    machine        and ask and tell, for the one machine that the token is of
    engineer       and for every machine; export and import episodes
    administrator  and compact the log, make and revoke tokens

The gate has found the caller before the body is read; a route says which role it needs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Path, Request, Security
from fastapi.security import HTTPBearer

from contextual_lqr.study.study import Study
from contextual_lqr.study.tokens import ROLES, Role

STUDY_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
SCHEME = Security(HTTPBearer(auto_error=False, description="A token of the study."))
"""That a route needs a token, for the description; the gate has looked at it already."""


@dataclass(frozen=True)
class Caller:
    """Who calls: the study, what they may there, and the machine that they are, if they are one."""

    name: str
    role: Role
    study: Study
    machine: str | None = None

    def may(self, role: Role) -> bool:
        """Whether they may do what needs this role."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def acting_for(self, machine: str | None) -> str | None:
        """The machine that is asked or told for; a machine is nobody but itself."""
        if self.role != "machine":
            return machine
        if machine not in (None, self.machine):
            raise HTTPException(403, f"this token is only for the machine {self.machine!r}")
        return self.machine


def authorized(role: Role) -> Any:
    """What a route depends on to be for callers of at least this role: the `Caller`."""

    def caller(
        request: Request,
        study: Annotated[str, Path(pattern=f"^{STUDY_NAME.pattern}$")],
        _: Annotated[Any, SCHEME] = None,
    ) -> Caller:
        found: Caller = request.scope["caller"]
        if not found.may(role):
            raise HTTPException(403, f"this needs a token of the role {role}, not {found.role}")
        return found

    return Depends(caller)
