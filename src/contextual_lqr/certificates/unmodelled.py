"""What a finding against the model may cost: the part of a certificate that no draw of it shows.

A test finds that the model misses e_t in state r, of root mean square s over the logs. At worst it
pulls the same way at every step, as friction and late inputs do. What that costs is more than what
a policy that knew of it would gain. With A_c = A + B K the loop of ours,

    z_{t+1} = A_c z_t + e_t,  z_0 = 0        cost Σ_t zᵀQz + uᵀRu + 2zᵀNu,  u = K z,  e_t = s in r

An input that acts late may make a loop unstable that was not, which no small push shows: there the
cost is also held against that with the whole input a step late.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.certificates.misspecification import Finding, misspecification, of_one_law
from contextual_lqr.lqr.problem import LinearPolicy, LinearSystem, QuadraticCost
from contextual_lqr.lqr.solve import policy_cost


def findings_of(decoder: Decoder) -> tuple[Finding, ...]:
    """What contradicts the model, beyond machines that differ if that is part of it.

    Where one law will do for all machines, the tests are of that law, with all rows of the fleet: a
    law for each machine would take as many unknowns as a short episode has rows, and leave errors
    that are correlated because of it.
    """
    kept, store, population = decoder.kept, decoder.store, decoder.population
    if "findings" not in kept and store is not None and population is not None:
        told = store.tested(decoder.context_map)
        if population.deviating.any():
            found = misspecification(*told, known=decoder.known)
        else:
            found = of_one_law(*told)
            if decoder.known:
                every = misspecification(*told, known=decoder.known)
                found += [one for one in every if one.kind == "known row"]
        kept["findings"] = tuple(one for one in found if one.kind != "machines differ")
    found_before: tuple[Finding, ...] = kept.get("findings", ())
    return found_before


def unmodelled(
    findings: Sequence[Finding],
    system: LinearSystem,
    gains: Float[Array, "n steps m d"],
    cost: QuadraticCost,
    start: Float[Array, " d"],
    predicted: Float[Array, " n"],
) -> tuple[Float[Array, " n"], list[str]]:
    """What the findings may cost n machines under their gains, and the costliest in words.

    As a part of the predicted cost. Several tests may find one thing: of those about a state, the
    worst counts.
    """
    if not findings:
        return np.zeros(len(gains)), [""] * len(gains)
    push = push_costs(system, gains, cost)
    costs = np.array([push[:, one.state] * one.size**2 for one in findings])
    d = system.state_size
    late = {one.regressor - d for one in findings if one.kind == "late input" and one.regressor}
    for j in late:
        more = late_cost(j, system, gains, cost, start) - predicted
        for i, one in enumerate(findings):
            if one.kind == "late input" and one.regressor == j + d:
                costs[i] = np.fmax(costs[i], more)
    costs /= np.abs(predicted)
    by_state = {one.state: np.zeros(len(gains)) for one in findings}
    for one, each in zip(findings, costs, strict=True):
        by_state[one.state] = np.fmax(by_state[one.state], each)
    total = sum(by_state.values(), np.zeros(len(gains)))
    return total, [findings[i].sentence for i in costs.argmax(0).tolist()]


def late_cost(
    j: int,
    system: LinearSystem,
    gains: Float[Array, "n steps m d"],
    cost: QuadraticCost,
    start: Float[Array, " d"],
) -> Float[Array, " n"]:
    """The cost of these gains if input j acts one step late: it is then a state as well."""
    d = gains.shape[-1]

    def with_state(array: Array, rows: int, columns: int) -> Array:
        return np.pad(array, [(0, 0)] * (array.ndim - 2) + [(0, rows), (0, columns)])

    A, B = with_state(system.A, 1, 1), with_state(system.B, 1, 0)
    A[..., :d, d], B[..., :d, j], B[..., d, j] = system.B[..., j], 0.0, 1.0
    delayed = LinearSystem.unchecked(A, B, with_state(system.noise, 1, 1))
    N = None if cost.N is None else with_state(cost.N, 1, 0)
    same = QuadraticCost(with_state(cost.Q, 1, 1), cost.R, N, indefinite=cost.indefinite)
    policy = LinearPolicy(with_state(gains, 0, 1))
    return np.asarray(policy_cost(policy, delayed, same, np.append(start, 0.0)))


def push_costs(
    system: LinearSystem, gains: Float[Array, "n steps m d"], cost: QuadraticCost
) -> Float[Array, "n d"]:
    """What a push of 1 in each state, at every step, costs these machines under their gains."""
    n, d = len(gains), gains.shape[-1]
    total, Z = np.zeros((n, d)), np.zeros((n, d, d))  # a column of Z for a push in each state
    for t in range(gains.shape[1]):
        U = gains[:, t] @ Z
        total += (Z * (cost.Q[t] @ Z)).sum(1) + (U * (cost.R[t] @ U)).sum(1)
        if cost.N is not None:
            total += 2 * (Z * (cost.N[t] @ U)).sum(1)
        Z = system.A @ Z + system.B @ U + np.eye(d)
    total += (Z * (cost.Q[-1] @ Z)).sum(1)
    return np.where(np.isfinite(total), np.maximum(total, 0.0), np.inf)
