"""What a finding against the model may cost: the part of a certificate that no draw of it shows.

A test finds that the model misses e_t in state r, of root mean square s over the logs. At worst it
pulls the same way at every step, as friction and late inputs do. What that costs is more than what
a policy that knew of it would gain. With A_c = A + B K the loop of ours,

    z_{t+1} = A_c z_t + e_t,  z_0 = 0        cost Σ_t zᵀQz + uᵀRu + 2zᵀNu,  u = K z,  e_t = s in r

or, for a constant gain, the cost of a step once z stands still at (I - A_c)⁻¹ e.

Rows may be too few to find what the step before does, so for an episode that counts from a level of
10 % on. Where inputs act more strongly than in the logs, so does what is wrong with them: s is that
many times as large.

What is not linear grows with the run: s is what it is where the expected run is farthest out. What
changes within an episode counts at its size at the end of the task, whether logs are longer or
shorter. And it may be in step with the run, so that its costs add up as lengths do, (√J + √c)² - J
for the c above and the predicted J.

An input that acts late may make a stable loop unstable, which no small push shows: what that costs
is told by the machine that the data then say there is (late_inputs.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from contextual_lqr import kernels
from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.certificates.model_tests.faulty_runs import faulty_runs
from contextual_lqr.certificates.model_tests.finding import DOUBT, Finding, numbered
from contextual_lqr.certificates.model_tests.late_inputs import late_excess
from contextual_lqr.certificates.model_tests.misspecification import misspecification
from contextual_lqr.certificates.model_tests.one_law import of_one_law
from contextual_lqr.context import Dynamics as NonLinear
from contextual_lqr.lqr.affine import moving_part
from contextual_lqr.lqr.dynamics import Dynamics
from contextual_lqr.lqr.moments import step_moments
from contextual_lqr.lqr.stationary import Cost, StationaryCost

COSTLY = 0.02  # from here on a finding forbids trust by itself


def findings_of(
    decoder: Decoder, cost: Cost | None = None, foreseen: Iterable[int] = ()
) -> tuple[Finding, ...]:
    """What contradicts the model, beyond machines that differ if that is part of it."""
    return tuple(one for one in doubts_of(decoder, cost, foreseen) if one.found)


def doubts_of(
    decoder: Decoder, cost: Cost | None = None, foreseen: Iterable[int] = ()
) -> tuple[Finding, ...]:
    """The same, and for an episode what the step before may explain, at a level of 10 %.

    And what actuators may do instead of what they are asked, as far as the logs do not exclude it.

    Of `foreseen` states a forecast says how they change, and nothing else counts.

    Where one law will do for all machines, the tests are of that law, with all rows of the fleet: a
    law for each machine would take as many unknowns as a short episode has rows, and leave errors
    that are correlated because of it. For a constant gain, which `in_the_long_run` any finding
    forbids to trust, both tests are made: the one sees what the other does not.
    """
    if isinstance(decoder.context_map, NonLinear):
        return ()  # the tests are of rows [x, u]
    kept, store, population = decoder.kept, decoder.store, decoder.population
    both = isinstance(cost, StationaryCost)
    if ("findings", both) not in kept and store is not None and population is not None:
        told = store.tested(decoder.context_map)
        deviating, found = population.deviating.any(), []
        if deviating or both:
            found += misspecification(*told, known=decoder.known, level=np.inf)
        if not deviating:
            found += of_one_law(*told, level=np.inf)
            if decoder.known and not both:
                every = misspecification(*told, known=decoder.known)
                found += [one for one in every if one.kind == "known row"]
        strengths = _strengths(decoder, *told[1:3])
        kept["findings", both] = tuple(
            replace(one, strengths=tuple(strengths[one.state].tolist()))
            for one in found
            if (one.found and one.kind != "machines differ")
            or (one.kind in ("late input", "memory") and not both and one.p_value <= DOUBT)
            or (one.kind == "actuator" and (not both or one.way == "fifths"))
        )
    found_before: tuple[Finding, ...] = kept.get(("findings", both), ())
    still = cost.constant if isinstance(cost, StationaryCost) else ()
    told_of = {*foreseen, *still}
    return tuple(one for one in found_before if one.state not in told_of)


def _strengths(decoder: Decoder, counts: Array, matrices: Array) -> Float[Array, "d m"]:
    """How strongly inputs act upon states: root mean squares of B over the rows of the logs."""
    B = (decoder.estimate @ matrices)[..., len(decoder.estimate) :]
    part = counts / max(int(counts.sum()), 1)
    return np.asarray(np.sqrt(np.einsum("n,nij->ij", part, B**2)))


def unmodelled(
    findings: Sequence[Finding],
    system: Dynamics,
    gains: Float[Array, "n *steps m d"],
    cost: Cost,
    start: Float[Array, " d"],
    predicted: Float[Array, " n"],
    names: Sequence[str] | None = None,
) -> tuple[Float[Array, " n"], list[str]]:
    """What the findings may cost n machines under their gains; the most telling, in words.

    `names` are those of all states and inputs, for the words.

    As a part of the predicted cost. Several tests may find one thing: of those about a state, or
    about an input, the worst counts; and the larger of what all states and all inputs come to.
    """
    m, d = gains.shape[-2:]
    names = numbered(d, m) if names is None else names
    if isinstance(cost, StationaryCost):  # what is not found says nothing of the long run
        findings = [one for one in findings if one.found]
    faults = [one for one in findings if one.kind == "actuator"]
    findings = [one for one in findings if one.kind != "actuator"]
    by_tests, said = _of_tests(findings, system, gains, cost, start, predicted, names)
    if not faults or isinstance(cost, StationaryCost):
        return by_tests, said
    costs = faulty_runs(faults, system, gains, cost, start) / np.abs(predicted)
    worst = np.zeros((m, len(gains)))  # of each input
    for one, each in zip(faults, costs, strict=True):
        assert one.regressor is not None  # the place of an input
        j = one.regressor - d
        worst[j] = np.fmax(worst[j], each)
    total, named = worst.sum(0), _most_telling(faults, costs, names)
    # A fault of an actuator that is found says more than what it looks like in a state.
    sure = (costs * np.array([[one.found] for one in faults])).max(0) > COSTLY
    for i in np.flatnonzero((total > by_tests) | sure).tolist():
        said[i] = named[i]
    return np.fmax(total, by_tests), said


def _of_tests(
    findings: Sequence[Finding],
    system: Dynamics,
    gains: Float[Array, "n *steps m d"],
    cost: Cost,
    start: Float[Array, " d"],
    predicted: Float[Array, " n"],
    names: Sequence[str],
) -> tuple[Float[Array, " n"], list[str]]:
    """The same of findings about states."""
    if not findings:
        return np.zeros(len(gains)), [""] * len(gains)
    push, larger = push_costs(system, gains, cost), _larger(findings, system, gains, cost, start)
    costs = np.array(
        [
            push[:, one.state] * (one.size * times) ** 2
            for one, times in zip(findings, larger, strict=True)
        ]
    )
    costs /= np.abs(predicted)
    curved = np.array([one.found and one.kind == "nonlinear" for one in findings])
    costs[curved] += 2 * np.sqrt(costs[curved])
    d = system.state_size
    by_state = {one.state: np.zeros(len(gains)) for one in findings}
    for one, each in zip(findings, costs, strict=True):
        by_state[one.state] = np.fmax(by_state[one.state], each)
    total, lateness = sum(by_state.values(), np.zeros(len(gains))), np.zeros(len(gains))
    for j in range(d, d + gains.shape[-2]):
        late = [i for i, one in enumerate(findings) if one.found and one.late == j]
        if late:
            about = [findings[i] for i in late]
            more = late_excess(j - d, about, system, gains, cost, start)
            costs[late], lateness = np.fmax(costs[late], more), lateness + more
    return np.fmax(total, lateness), _most_telling(findings, costs, names)


def _most_telling(
    findings: Sequence[Finding], costs: Float[Array, "k n"], names: Sequence[str]
) -> list[str]:
    """Of what is costly, that which explains most; else the costliest."""
    effects = np.array([[one.effect] for one in findings])
    order = np.where(costs > COSTLY, 1 + effects, costs)
    return [findings[i].said(names) for i in order.argmax(0).tolist()]


def _larger(
    findings: Sequence[Finding],
    system: Dynamics,
    gains: Float[Array, "n *steps m d"],
    cost: Cost,
    start: Float[Array, " d"],
) -> list[Float[Array, " n"]]:
    """How many times larger than in the logs what was found may be on these machines; at least 1.

    Where their inputs are stronger, so is what comes of a fault of actuators. And what is not
    linear is larger where the run is, at its farthest. Noise is left out: it is that of the logs.
    """
    B = np.abs(system.B)
    B = B if system.steps is None else B.max(-3)
    sizes = np.zeros((len(gains), len(start) + B.shape[-1]))
    if any(one.power for one in findings) and not isinstance(cost, StationaryCost):
        M = np.concatenate((system.A, system.B), -1)
        for moment in step_moments(M, np.zeros((len(start), len(start))), gains, start):
            sizes = np.fmax(sizes, np.sqrt(np.diagonal(moment, axis1=1, axis2=2)))
    found = []
    for one in findings:
        times = np.ones(len(gains))
        for j, usual in enumerate(one.strengths):
            if usual > 0:
                times = np.fmax(times, B[..., one.state, j] / usual)
        if one.power and one.regressor is not None and one.usual > 0:
            times = times * np.fmax(sizes[:, one.regressor] / one.usual, 1.0) ** one.power
        if one.pace and not isinstance(cost, StationaryCost):  # as at the end of the task
            times = times * (gains.shape[1] - 1) / one.pace
        found.append(times)
    return found


def in_the_long_run(
    findings: Sequence[Finding], cost: Cost, names: Sequence[str] | None = None
) -> str:
    """What forbids to trust a constant gain, in words: whatever the tests have found.

    In the long run all costs are the noise's, and small motions are all there is. If errors are of
    measurement, or come in waves, the best controller filters, and may be far better than any gain:
    40 % were seen where next to nothing of the next error could be predicted. So what a finding
    costs cannot be told from its size.
    """
    found = [one for one in findings if one.found]
    if not found or not isinstance(cost, StationaryCost):
        return ""
    names = numbered(cost.state_size, cost.input_size) if names is None else names
    return f"{found[0].said(names)}: what that costs in the long run is unknown"


def push_costs(
    system: Dynamics, gains: Float[Array, "n *steps m d"], cost: Cost
) -> Float[Array, "n d"]:
    """What a push of 1 in each state, at every step, costs these machines under their gains."""
    n, d = len(gains), gains.shape[-1]
    if isinstance(cost, StationaryCost):
        if cost.constant:  # are not pushed, and are no part of what comes of a push
            parts = moving_part(system, gains, cost)
            total = np.zeros((n, d))
            total[:, cost.moving] = push_costs(*parts)
            return total
        F = system.A + system.B @ gains
        _, stable = kernels.lyapunov(F, np.eye(d)[None], batch=n)
        F = np.where(stable[:, None, None], F, 0.0)
        Z = np.linalg.solve(np.eye(d) - F, np.eye(d))
        total = _forms(Z, gains @ Z, cost.Q, cost.R, cost.N)
        return np.where(stable[:, None] & np.isfinite(total), np.maximum(total, 0.0), np.inf)
    total, Z = np.zeros((n, d)), np.zeros((n, d, d))  # a column of Z for a push in each state
    for t in range(gains.shape[1]):
        U = gains[:, t] @ Z
        total += _forms(Z, U, cost.Q[t], cost.R[t], None if cost.N is None else cost.N[t])
        A, B = system.at(t)
        Z = A @ Z + B @ U + np.eye(d)
    total += (Z * (cost.Q[-1] @ Z)).sum(1)
    return np.where(np.isfinite(total), np.maximum(total, 0.0), np.inf)


def _forms(Z: Array, U: Array, Q: Array, R: Array, N: Array | None) -> Array:
    """zᵀQz + uᵀRu + 2zᵀNu for each column z of Z, and u of U."""
    total = (Z * (Q @ Z)).sum(1) + (U * (R @ U)).sum(1)
    return np.asarray(total if N is None else total + 2 * (Z * (N @ U)).sum(1))
