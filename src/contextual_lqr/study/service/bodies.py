"""What is sent and answered: these types make the description, and refuse what is not like it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from contextual_lqr.study.tokens import Role

_DEPTH = 16  # lists and names in a context, one within the other


def _shallow(value: Any) -> Any:
    """Refuse what is nested too deeply, and whole numbers that no float can hold."""
    level, depth = [value], 0
    while level:
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += one.values()
            elif isinstance(one, list):
                inner += one
            elif isinstance(one, int) and abs(one) >= 2**1023:
                raise ValueError("a number is too large")
        level, depth = inner, depth + 1
        if depth > _DEPTH:
            raise ValueError(f"it is nested more than {_DEPTH} deep")
    return value


def _whole(value: Any) -> Any:
    """JSON has one kind of number: 200.0 is as whole as 200."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Context = Annotated[Any, AfterValidator(_shallow), Field(description="The machine's context.")]
Label = Annotated[str, Field(min_length=1, max_length=500)]
Key = Annotated[str, Field(min_length=1, max_length=64)]
Number = float | Literal["Infinity", "-Infinity", "NaN"]
Vector = list[float]
Matrix = list[list[float]]


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class AskBody(_Body):
    """Which machine is to play, and from where."""

    context: Context
    machine: Label | None = None
    start: Vector | None = None
    key: Key | None = None
    lease: Annotated[float, Field(gt=0)] = 3600.0
    worker: Label | None = None


class TellBody(_Body):
    """What was played: states (H, d) and inputs (H-1, m), under an ask or in a context."""

    states: Matrix
    inputs: Matrix
    ask: Key | None = None
    context: Context = None
    machine: Label | None = None
    key: Key | None = None
    worker: Label | None = None


class EpisodeRecord(_Body):
    """An episode as it is exported."""

    key: Key
    context: Context
    states: Matrix
    inputs: Matrix
    ask: Key | None = None
    machine: Label | None = None
    worker: Label | None = None
    told_at: float | None = None


class MachineBody(_Body):
    """A machine by its context, and its label if it has told anything."""

    context: Context
    machine: Label | None = None


class CertifyBody(MachineBody):
    """A machine, and how to certify; what is left out is as in `certify`."""

    beta: str | Annotated[float, Field(gt=0)] | None = None
    delta: Annotated[float, Field(ge=1e-12, lt=1)] | None = None
    draws: Annotated[int, Field(ge=1, le=2000), BeforeValidator(_whole)] | None = None
    bounds: bool | None = None
    noise: Matrix | None = None
    input_bounds: Annotated[list[Vector], Field(min_length=2, max_length=2)] | None = None
    states: list[Label] | None = None


class TokenBody(_Body):
    """A token to make; of a machine, with its label."""

    role: Role
    machine: Label | None = None
    name: Label | None = None


class TokenFacts(BaseModel):
    """What is kept of a token; its secret is not."""

    id: str
    name: str
    role: Role
    machine: str | None
    created_at: float
    revoked_at: float | None


class NewToken(TokenFacts):
    """A token that was made, with its text, which is shown this once."""

    token: str


class ToldAnswer(BaseModel):
    """The number of an episode in the log, and whether it is new."""

    number: int
    new: bool


class PolicyAnswer(BaseModel):
    """The inputs u[h] = gains[h] x[h]."""

    type: Literal["LinearPolicy"]
    gains: list[Matrix]


class PlanAnswer(BaseModel):
    """A plan: u[h] = gains[h] x[h] + offsets[h], within input_bounds (low, high)."""

    type: Literal["Asked"]
    key: str
    context: Any
    machine: str | None
    policy: PolicyAnswer
    offsets: Matrix
    input_bounds: tuple[list[Number], list[Number]] | None
    dither: list[Matrix] | None
    promised_cost: Number
    theta: Matrix
    estimate: Matrix
    diagnostics: dict[str, Any]


class CertificateAnswer(BaseModel):
    """A controller, and how far to trust it; the fields are those of `Certificate`."""

    model_config = ConfigDict(extra="allow")
    type: str
    policy: dict[str, Any]
    verdict: Literal["trust", "caution", "do not use"]
    reason: str
    predicted_cost: Number


class StatusAnswer(BaseModel):
    """How the study stands; the fields are those of `StudyStatus`."""

    model_config = ConfigDict(extra="allow")
    type: str
    episodes: int
    rows: int
    waiting: int
    late: int
    machines: dict[str, int]


class Description(BaseModel):
    """The description that a study began with, as TOML."""

    description: str | None


class Forgotten(BaseModel):
    """How many asks were forgotten."""

    forgotten: int


class Studies(BaseModel):
    """The studies that the caller may see."""

    studies: list[str]


class Health(BaseModel):
    """That the service runs."""

    status: Literal["ok"]
