"""A controller as one C file, which takes the context at run time, or is for one machine.

Both kinds of context maps come down to one form, features fₗ of the context times known matrices:

    G = Σₗ fₗ Gₗ        [A, B] = Θ G = Σₗ fₗ Θ Gₗ

so that the file holds Θ Gₗ. How far a context is from the data is the score of
certificates/extrapolation.py: |root⁻ᵀ f|² of a triangle where there is a constant feature, else
that of the steps at rest and about it, E|R⁻ᵀ G y|², from R⁻ᵀ Gₗ. If the gain hedges, the file holds
halves of what is unknown, too (`c_doubt.py`). A file for one machine holds its gain.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
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
from contextual_lqr.deployment.c_doubt import doubt_of
from contextual_lqr.deployment.c_expressions import c_expression, c_number, operations
from contextual_lqr.deployment.c_sizes import DOUBLINGS, HEDGINGS, REFINEMENTS, Counts, counted
from contextual_lqr.deployment.controller import Controller
from contextual_lqr.deployment.task import Task
from contextual_lqr.errors import InputError, MissingExtraError

_TOLERANCE = {False: 1e-9, True: 1e-4}  # of the Riccati equation, for doubles and floats
_SETTLED = {False: 1e-11, True: 1e-5}  # of the hedged one
_PER_LINE = 6
_KEYWORDS = (
    "auto|break|case|char|const|continue|default|do|double|else|enum|extern|float|for|goto|if|"
    "inline|int|long|register|restrict|return|short|signed|sizeof|static|struct|switch|typedef|"
    "union|unsigned|void|volatile|while"
)
_NAME = re.compile(rf"(?!({_KEYWORDS})\Z)[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True)
class CFile:
    """The text of a controller, of its header if that is apart, and what it takes to run it."""

    source: str
    header: str | None
    counts: Counts


def c_file(
    decoder: Decoder,
    task: Task,
    *,
    hedge: float = 0.0,
    machine: tuple[Controller, str] | None = None,
    single: bool = False,
    header: str | None = None,
    prefix: str = "controller",
) -> CFile:
    """The controller of any machine of a fleet for a task, in doubles or, `single`, in floats.

    Parameters
    ----------
    decoder, task
        What was learnt, and what is to be done. The inputs are called as the task's limits.
    hedge
        By how much of what is unknown the gain hedges.
    machine
        The controller of the one machine that the file is for, and what it is called.
    single
        Floats instead of doubles.
    header
        The name of a header to write apart.
    prefix
        What the names of functions, types and constants begin with.
    """
    require(decoder.rows, "the decoder has learnt from no log yet: there is nothing to export")
    require(
        _NAME.fullmatch(prefix),
        f"names in C begin with a letter, and have letters, digits and _ alone: not {prefix!r}",
    )
    write = _Numbers(single)
    content: dict[str, Any] = {
        "version": version("contextual-lqr"),
        "rows": f"{decoder.rows:,}",
        "single": single,
        "f": "f" if single else "",
        "header": header,
        "hedge": f"{hedge:g}" if hedge else "",
        "hedged": [],
        "fixed": "" if machine is None else _plain(machine[1]),
        **_duty(task, write),
    }
    of_features = 0
    if machine is None:
        features, matrices = context_features(decoder)
        of_features = sum(map(operations, features))
        content |= _law(decoder, task, features, matrices, hedge, write)
    else:
        content |= _one_machine(machine[0], write)
    counts = counted(content, of_features)
    content |= vars(counts)
    declared, source = _rendered(prefix, content)
    return CFile(source, declared if header else None, counts)


class _Numbers:
    """Arrays as numbers of C, in lines."""

    def __init__(self, single: bool) -> None:
        self.single = single

    def __call__(self, value: float) -> str:
        return c_number(value, self.single)

    def line(self, array: Any) -> list[str]:
        return [self(x) for x in np.asarray(array, float).ravel().tolist()]

    def table(self, array: Any) -> list[list[str]]:
        flat = self.line(array)
        return [flat[i : i + _PER_LINE] for i in range(0, len(flat), _PER_LINE)]


def _duty(task: Task, write: _Numbers) -> dict[str, Any]:
    """What is to be done: what is measured and held, the limits, the cost."""
    larger, held, moving = task.cost_with_integrators, list(task.held), list(task.moving)
    place = {i: k for k, i in enumerate((*moving, *task.measured))}
    d, single = len(task.names), write.single
    inputs = {d + i: len(moving) + i for i in range(task.cost.input_size)}
    past = task.past
    return {
        "seen_names": [_plain(task.names[i]) for i in task.seen],
        "state_names": [_plain(name) for name in task.free_names],
        "input_names": [_plain(name) for name in task.limits.names],
        "measured_names": [_plain(task.names[i]) for i in task.measured],
        "target_names": [_plain(name) for name in task.held_names],
        "integrated_names": [_plain(task.free_names[i]) for i in task.integrated],
        "places": [place[i] for i in task.seen],
        "past": [place[i] for i in past],
        "before": [(place | inputs)[i] for i in past.values()],
        "fades": any(task.fades),
        "stays": write.line([task.fades[i] for i in past] if any(task.fades) else []),
        "held": held,
        "target": write.line(task.target),
        "integrated": list(task.integrated),
        "its_target": [held.index(i) for i in task.integrated],
        "moving": moving,
        "measured": list(task.measured),
        "constants": task.constants,
        "has_constant": bool(task.constants),
        "at_rest": bool(task.constants or held or task.measured),
        "lowest": write.line(task.limits.low),
        "highest": write.line(task.limits.high),
        "Q": write.table(larger.Q),
        "R": write.table(larger.R),
        "cross": larger.N is not None,
        "N": write.table([] if larger.N is None else larger.N),
        "discounted": larger.discount != 1,
        "discount": write(larger.discount),
        "equilibrations": EQUILIBRATIONS,
        "singular": write(1e-4 if single else SINGULAR),
        "unheld": write(1e-3 if single else UNHELD),
    }


def _law(
    decoder: Decoder,
    task: Task,
    features: list[Expression],
    matrices: Float[Array, "features p y"],
    hedge: float,
    write: _Numbers,
) -> dict[str, Any]:
    """What is learnt: the law, where it holds, and what is unknown if that is hedged against."""
    bounds = dict(decoder.context_map.bounds or {})
    variables = {name: f"context[{i}]" for i, name in enumerate(bounds)}
    moving, single = list(task.moving), write.single
    content: dict[str, Any] = {
        "context_names": [_plain(name) for name in bounds],
        "columns": matrices.shape[2],
        "features": [(one.text, c_expression(one, variables, single)) for one in features],
        "matrices": write.table(believed_law(decoder)[moving] @ matrices),
        "lowest_context": write.line([low for low, _ in bounds.values()]),
        "highest_context": write.line([high for _, high in bounds.values()]),
        "doublings": DOUBLINGS,
        "refinements": REFINEMENTS,
        "hedgings": HEDGINGS,
        "tolerance": write(_TOLERANCE[single]),
        "settled": write(_SETTLED[single]),
        "far": write(EDGE),
    }
    root = context_root(decoder)
    if root is not None:
        content["root"] = write.table(root)
    else:
        p, y = matrices.shape[1:]
        flat = np.concatenate(list(matrices), 1)
        halves = solve_triangle(decoder.factor, flat, transposed=True) * np.sqrt(decoder.rows / p)
        content["halves"] = write.table(halves.reshape(p, -1, y).swapaxes(0, 1))
        content["halves_rows"] = p
        content["noise"] = write.line(np.diagonal(decoder.noise_estimate)[moving])
    doubt = doubt_of(decoder, task, matrices, hedge) if hedge else None
    if doubt is not None and doubt.rows:
        content |= {
            "hedged": doubt.rows,
            "groups": doubt.groups,
            "doubts": len(doubt.halves),
            "doubt_rows": doubt.halves.shape[2],
            "scales": write.line(doubt.scales),
            "doubt": write.table(doubt.halves),
            "spread": [] if doubt.spread is None else write.table(doubt.spread),
        }
    return content


def _one_machine(controller: Controller, write: _Numbers) -> dict[str, Any]:
    A, B, offset = controller.parts
    return {
        "A": write.table(A),
        "B": write.table(B),
        "W": write.table(controller.disturbance),
        "offset": write.table(offset),
        "gain": write.table(controller.gain),
        "lead": write.table(controller.lead),
    }


def _rendered(prefix: str, content: dict[str, Any]) -> tuple[str, str]:
    """The header and the source; what is called controller in them has the prefix."""
    try:
        import jinja2
    except ImportError as error:
        raise MissingExtraError("Jinja", "cli") from error
    folder = resources.files("contextual_lqr.deployment") / "templates"

    def named(name: str) -> str:
        text = (folder / name).read_text(encoding="utf-8")
        text = re.sub(r"\bcontroller(?=_|\b(?!\.[ch]))", prefix, text)
        return re.sub(r"\bCONTROLLER(?=_)", prefix.upper(), text)

    pages = jinja2.Environment(
        loader=jinja2.FunctionLoader(named),
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    both = (pages.get_template(name).render(content) for name in ("controller.h", "controller.c"))
    header, source = both
    return header, source


def _plain(name: str) -> str:
    """A name within a comment of C, which it must not end."""
    return name.replace("*/", "* /").replace("/*", "/ *").replace("\n", " ").replace("\\", "/")


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
    if described is None or context_map.shape is None:
        raise InputError(
            "the context map has a function of your own, which cannot be written in C: use "
            "expressions, such as FeatureContext(['1', '1/mass']), or export one machine"
        )
    require(context_map.bounds, "the machines have no context: export one machine")
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
