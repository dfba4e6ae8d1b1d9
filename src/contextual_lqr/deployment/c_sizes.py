"""What a C file takes: bytes of constants, struct and stack, and operations at most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from contextual_lqr.deployment.at_rest import EQUILIBRATIONS

DOUBLINGS, REFINEMENTS, HEDGINGS = 50, 3, 30

_TABLES = (
    *("matrices", "Q", "R", "N", "root", "halves", "doubt", "spread"),
    *("A", "B", "W", "offset", "gain", "lead"),
)
_LINES = (
    *("lowest_context", "highest_context", "lowest", "highest", "target", "noise", "scales"),
    "stays",
)


@dataclass(frozen=True)
class Counts:
    """Bytes, and multiplications and divisions at most; 0 for what there is not."""

    data_bytes: int
    state_bytes: int
    stack_bytes: int
    context_operations: int
    target_operations: int
    step_operations: int


def counted(content: dict[str, Any], of_features: int) -> Counts:
    """The counts of what a file holds; a compiler may make one call of all."""
    n, m, held = (len(content[f"{one}_names"]) for one in ("state", "input", "target"))
    k, w, past = (len(content[one]) for one in ("integrated", "measured", "past"))
    f, h = len(content.get("features", ())), len(content["hedged"])
    fixed, a = bool(content["fixed"]), n + k
    p, y = content.get("halves_rows", 0), content.get("columns", 0)
    groups, half = content.get("doubts", 0), content.get("doubt_rows", 0)
    z = n + m
    numbers = sum(len(row) for name in _TABLES for row in content.get(name, ()))
    numbers += sum(len(content.get(name, ())) for name in _LINES)

    def elimination(size: int, columns: int) -> int:
        return size**3 // 3 + size**2 * (columns + 1)

    whole = n * n + n * m + m * a + n + 2 * m + held + k + k * n + n * content["has_constant"]
    whole += w * (1 + 2 * n + m) + (n + m) * bool(w) + z * bool(past)
    unknown = 2 * n + m + held
    rest = content["at_rest"] * (unknown**2 + 6 * unknown + 2 * n + m)
    stack, context = rest, 0
    at_rest = (2 * EQUILIBRATIONS + 3) * unknown**2 + elimination(unknown, 1) + z * n + 2 * n
    if not fixed:
        weights = a * a + a * m + m * m
        riccati = 5 * a * a + m * m + m * a + (a * a + 2 * a * m + m * m)
        value = (h + 1) * a * a + 3 * a * a + 2 * z * a + 3 * h * h + h
        hedge = max(value, riccati) + 2 * a * a + weights if h else riccati
        gain = 3 * a * a + (a * a + a * m) * content["discounted"] + hedge
        gain += half * z + z * z + h * z * z if h else 0
        score = f if not p else 3 * a**2 + y * y + p * y + y
        stack = f + a * (a + m) + whole + gain + rest + score
        doubling = 6 * a**3 + 2 * elimination(a, a) + 5 * a * a
        step = 2 * a**3 + 3 * a * a * m + a * m * m + elimination(m, a) + 4 * a * a
        solved = DOUBLINGS * doubling + REFINEMENTS * step + 4 * a * a * m
        solved += 2 * elimination(m, a) + 3 * a * a
        context = of_features + f * n * y + solved + DOUBLINGS * a**3 + elimination(k, n)
        context += content["at_rest"] * (w + 1) * at_rest
        context += f * f + f
        if p:
            context += DOUBLINGS * 3 * a**3 + a * a * m * 2 + y * y + m * m * a + f * p * y
            context += 2 * p * y * y
        if h:
            powers = DOUBLINGS * ((2 * (h + 1) + 1) * a**3 + h**3)
            varied = h * (z * z * a + z * a * a) + elimination(h, 1) + h * a * a + 3 * a * a * m
            weighed = 2 * h * z * z
            context += HEDGINGS * (powers + varied + solved + step + weighed)
            context += groups * (f * half * z + half * z * z) + h * z * z
    size = 4 if content["single"] else 8
    return Counts(
        size * numbers,
        size * whole + 24,
        size * stack + 512,
        context,
        at_rest + (w * z if w else 0) if held else 0,
        m * (a + k) + k * n + w * z + len(content["stays"]),
    )
