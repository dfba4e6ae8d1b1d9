"""A controller as one C file, which takes the context at run time.

Both kinds of context maps come down to one form, features fₗ of the context times known matrices:

    G = Σₗ fₗ Gₗ        [A, B] = Θ G = Σₗ fₗ Θ Gₗ

so that the file holds Θ Gₗ. How far a context is from the data is the score of
certificates/extrapolation.py: |root⁻ᵀ f|² of a triangle where there is a constant feature, else
that of the steps at rest and about it, E|R⁻ᵀ G y|², from R⁻ᵀ Gₗ.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.factors import solve_triangle
from contextual_lqr.certificates.extrapolation import EDGE, context_root
from contextual_lqr.checks import require
from contextual_lqr.context import BlockContext, FeatureContext
from contextual_lqr.context.expressions import Expression, parse
from contextual_lqr.deployment.at_rest import EQUILIBRATIONS, SINGULAR, UNHELD
from contextual_lqr.deployment.c_expressions import c_expression, c_number, operations
from contextual_lqr.deployment.task import Task
from contextual_lqr.errors import InputError, MissingExtraError

DOUBLINGS, REFINEMENTS = 50, 3
_TOLERANCE = {False: 1e-9, True: 1e-4}  # of the Riccati equation, for doubles and floats
_PER_LINE = 6


@dataclass(frozen=True)
class CFile:
    """The text of a controller, of its header if that is apart, and what it takes to run it."""

    source: str
    header: str | None
    data_bytes: int
    state_bytes: int
    stack_bytes: int
    context_operations: int
    target_operations: int
    step_operations: int


def c_file(
    decoder: Decoder,
    task: Task,
    *,
    single: bool = False,
    header: str | None = None,
) -> CFile:
    """The controller of any machine of a fleet for a task, in doubles or, `single`, in floats.

    `header` is the name of a header to write apart. The inputs are called as the task's limits.
    """
    try:
        import jinja2
    except ImportError as error:
        raise MissingExtraError("Jinja", "cli") from error
    require(decoder.rows, "the decoder has learnt from no log yet: there is nothing to export")
    features, matrices = context_features(decoder)
    bounds = dict(decoder.context_map.bounds or {})
    variables = {name: f"context[{i}]" for i, name in enumerate(bounds)}
    theta = believed_law(decoder)[list(task.moving)]
    larger, n, m = task.cost_with_integrators, len(task.moving), task.cost.input_size
    constants, held = task.constants, list(task.held)

    def table(array: Any) -> list[list[str]]:
        flat = [c_number(x, single) for x in np.asarray(array, float).ravel().tolist()]
        return [flat[i : i + _PER_LINE] for i in range(0, len(flat), _PER_LINE)]

    def line(array: Any) -> list[str]:
        return [c_number(x, single) for x in np.asarray(array, float).ravel().tolist()]

    content: dict[str, Any] = {
        "version": version("contextual-lqr"),
        "rows": f"{decoder.rows:,}",
        "single": single,
        "header": header,
        "context_names": list(bounds),
        "state_names": task.free_names,
        "input_names": task.limits.names,
        "target_names": task.held_names,
        "integrated_names": [task.free_names[i] for i in task.integrated],
        "held": held,
        "target": line(task.target),
        "integrated": list(task.integrated),
        "its_target": [held.index(i) for i in task.integrated],
        "moving": list(task.moving),
        "constants": constants,
        "has_constant": bool(constants),
        "at_rest": bool(constants or held),
        "columns": matrices.shape[2],
        "features": [(one.text, c_expression(one, variables, single)) for one in features],
        "matrices": table(theta @ matrices),
        "lowest_context": line([low for low, _ in bounds.values()]),
        "highest_context": line([high for _, high in bounds.values()]),
        "lowest": line(task.limits.low),
        "highest": line(task.limits.high),
        "Q": table(larger.Q),
        "R": table(larger.R),
        "cross": larger.N is not None,
        "N": table([] if larger.N is None else larger.N),
        "discounted": larger.discount != 1,
        "discount": c_number(larger.discount, single),
        "doublings": DOUBLINGS,
        "refinements": REFINEMENTS,
        "equilibrations": EQUILIBRATIONS,
        "tolerance": c_number(_TOLERANCE[single], single),
        "singular": c_number(1e-4 if single else SINGULAR, single),
        "unheld": c_number(1e-3 if single else UNHELD, single),
        "far": c_number(EDGE, single),
    }
    root = context_root(decoder)
    if root is not None:
        content["root"] = table(root)
    else:
        p, y = matrices.shape[1:]
        flat = np.concatenate(list(matrices), 1)
        halves = solve_triangle(decoder.factor, flat, transposed=True) * np.sqrt(decoder.rows / p)
        content["halves"] = table(halves.reshape(p, -1, y).swapaxes(0, 1))
        content["halves_rows"] = p
        content["noise"] = line(np.diagonal(decoder.noise_estimate)[list(task.moving)])
    sizes = _sizes(content, n, m, matrices.shape[2], single)
    counts = _operations(content, n, m, matrices.shape[2], sum(map(operations, features)))
    pages = jinja2.Environment(
        loader=jinja2.PackageLoader("contextual_lqr.deployment"),
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    content |= sizes | counts
    declared = pages.get_template("controller.h").render(content)
    source = pages.get_template("controller.c").render(content)
    return CFile(source, declared if header else None, **sizes, **counts)


def believed_law(decoder: Decoder) -> Float[Array, "d p"]:
    """Θ of a machine never seen: the fleet's law, in rows where machines deviate from it too."""
    theta, population = decoder.posterior.estimate.copy(), decoder.population
    if population is not None:
        rows = population.deviating
        theta[rows] = population.pooled.theta[rows]
    return theta


def context_features(decoder: Decoder) -> tuple[list[Expression], Float[Array, "features p y"]]:
    """The expressions fₗ and the matrices Gₗ of G = Σ fₗ Gₗ; refused if a function makes G."""
    context_map = decoder.context_map
    described = context_map.describe()
    if described is None or context_map.shape is None or not context_map.bounds:
        raise InputError(
            "the context map has a function of your own, which cannot be written in C: use "
            "expressions, such as FeatureContext(['1', '1/mass'])"
        )
    p, d, m = context_map.shape
    parts: dict[str, Array] = {}
    if isinstance(context_map, FeatureContext):
        for i, (_, text) in enumerate(described["features"]):
            parts.setdefault(text, np.zeros((p, d + m)))
            parts[text][i * (d + m) : (i + 1) * (d + m)] += np.eye(d + m)
    else:
        assert isinstance(context_map, BlockContext)
        (p1, _), rows = np.shape(context_map.C), {"C": (0, 0), "D": (0, 0)}
        rows["D"] = (p1, d)
        for part, (down, right) in rows.items():
            for i, row in enumerate(np.asarray(getattr(context_map, part), object)):
                for j, entry in enumerate(row):
                    text, value = (entry, 1.0) if isinstance(entry, str) else ("1", float(entry))
                    if value:
                        parts.setdefault(text.strip(), np.zeros((p, d + m)))
                        parts[text.strip()][down + i, right + j] += value
    return [parse(text) for text in parts], np.stack(list(parts.values()))


def _sizes(content: dict[str, Any], n: int, m: int, y: int, single: bool) -> dict[str, int]:
    """Bytes of constants, of one controller, and of all calls, which a compiler may make one."""
    tables = ("matrices", "Q", "R", "N", "root", "halves")
    lines = ("lowest_context", "highest_context", "lowest", "highest", "target", "noise")
    numbers = sum(len(row) for name in tables for row in content.get(name, ()))
    numbers += sum(len(content.get(name, ())) for name in lines)
    held, k, f = len(content["held"]), len(content["integrated"]), len(content["features"])
    larger, p = n + k, content.get("halves_rows", 0)
    whole = n * n + n * m + m * larger + n + 2 * m + held + k + k * n + n * content["has_constant"]
    context = f + larger * (larger + m) + whole
    riccati = 6 * larger**2 + m * m + m * larger + (larger**2 + 2 * larger * m + m * m)
    unknown = 2 * n + m + held
    rest = content["at_rest"] * (unknown**2 + 5 * unknown)
    score = f if not p else 3 * larger**2 + y * y + p * y + y
    size = 4 if single else 8
    return {
        "data_bytes": size * numbers,
        "state_bytes": size * whole + 16,
        "stack_bytes": size * (context + riccati + rest + score) + 512,
    }


def _operations(
    content: dict[str, Any], n: int, m: int, y: int, of_features: int
) -> dict[str, int]:
    """Multiplications and divisions, at most."""
    held, k, f = len(content["held"]), len(content["integrated"]), len(content["features"])
    a, p = n + k, content.get("halves_rows", 0)

    def elimination(size: int, columns: int) -> int:
        return size**3 // 3 + size**2 * (columns + 1)

    doubling = 6 * a**3 + 2 * elimination(a, a) + 5 * a * a
    step = 2 * a**3 + a * a * m + 2 * a * a * m + a * m * m + elimination(m, a) + 4 * a * a
    gain = DOUBLINGS * (doubling + a**3) + REFINEMENTS * step + 4 * a * a * m
    gain += 2 * elimination(m, a) + 3 * a * a + elimination(k, n)
    unknown = 2 * n + m + held
    rest = (2 * EQUILIBRATIONS + 3) * unknown**2 + elimination(unknown, 1) + (n + m) * n + 2 * n
    score = f * f + f
    if p:
        score = DOUBLINGS * 3 * a**3 + a * a * m * 2 + y * y + m * m * a + f * p * y + 2 * p * y * y
    target = rest if content["at_rest"] else 0
    return {
        "context_operations": of_features + f * n * y + gain + target + score,
        "target_operations": target,
        "step_operations": m * (a + k) + k * n,
    }
