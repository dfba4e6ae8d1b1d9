"""Contexts, episodes and plans as text and bytes, the same for the same content everywhere."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from contextual_lqr.checks import shown
from contextual_lqr.errors import InputError
from contextual_lqr.files import packed, unpacked
from contextual_lqr.lqr.problem import LinearPolicy, QuadraticCost, Trajectory
from contextual_lqr.lqr.trajectory_cost import trajectory_cost
from contextual_lqr.planning.plan import Plan

_VERSION = 1


def context_text(context: Any) -> str:
    """A context as JSON; numbers keep all their digits."""
    return json.dumps(_plain(context), sort_keys=True, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    match value:
        case str() | None:
            return value
        case bool() | int() | float() if math.isfinite(value):
            return value
        case Mapping() if all(isinstance(name, str) for name in value):
            return {name: _plain(one) for name, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
    raise InputError(
        f"a study keeps contexts of names, finite numbers and lists of them, not {shown(value)}"
    )


def context_of(text: str) -> Any:
    """The context that `context_text` wrote."""
    return json.loads(text)


def episode_bytes(played: Trajectory) -> bytes:
    """An episode's states and inputs, to the bit."""
    return packed("episode", _VERSION, {}, {"states": played.states, "inputs": played.inputs})


def episode_of(content: bytes, name: str) -> Trajectory:
    """The episode of such bytes; `name` says in an error where they are from."""
    _, arrays = unpacked(content, "episode", _VERSION, name)
    return Trajectory(arrays["states"], arrays["inputs"])


def cost_and_steps(played: Trajectory, cost: QuadraticCost) -> tuple[float | None, int]:
    """What an episode cost, if it was no longer than the cost is for and did not run away."""
    steps = len(played)
    if steps >= cost.horizon:
        return None, steps
    found = float(trajectory_cost(played, cost))
    return (found if math.isfinite(found) else None), steps


def episode_key(context: str, machine: str | None, content: bytes) -> str:
    """What an episode is known by if nobody names it: a digest of all that was played."""
    label = "" if machine is None else f"{len(machine)}:{machine}"
    return hashlib.sha256(b"\0".join((context.encode(), label.encode(), content))).hexdigest()


def plan_bytes(plan: Plan, start: Any) -> bytes:
    """A plan, to the bit, with the state in which its episode starts."""
    low, high = plan.input_bounds or (None, None)
    arrays = {
        "gains": plan.policy.gains,
        "theta": plan.theta,
        "estimate": plan.estimate,
        "offsets": plan.offsets,
        "start": np.asarray(start, float),
        "dither": plan.dither,
        "low": low,
        "high": high,
    }
    state = {"promised_cost": plan.promised_cost, "diagnostics": _plain_facts(plan.diagnostics)}
    given = {name: one for name, one in arrays.items() if one is not None}
    return packed("plan", _VERSION, state, given)


def plan_fields(content: bytes, context: str, name: str) -> tuple[dict[str, Any], Any]:
    """The fields of a `Plan`, but for its machine, and the start of its episode."""
    state, arrays = unpacked(content, "plan", _VERSION, name)
    low, high = arrays.get("low"), arrays.get("high")
    fields = {
        "context": context_of(context),
        "policy": LinearPolicy(arrays["gains"]),
        "theta": arrays["theta"],
        "promised_cost": state["promised_cost"],
        "dither": arrays.get("dither"),
        "diagnostics": state["diagnostics"],
        "estimate": arrays["estimate"],
        "offsets": arrays["offsets"],
        "input_bounds": None if low is None or high is None else (low, high),
    }
    return fields, arrays["start"]


def _plain_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What of a strategy's diagnostics JSON can hold."""
    plain = {}
    for name, value in facts.items():
        value = value.item() if isinstance(value, np.generic) else value
        if isinstance(value, bool | int | float | str) or value is None:
            plain[name] = value
    return plain
