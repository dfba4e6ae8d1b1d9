"""The misfit alarm: machines that do not obey [A, B] = Θ G(context).

A machine with a wrong mass on its label, or a broken actuator, is tested against the fit of all the
*other* machines, Θ̂ with factor R. Let its rows [z x'] have the factor [[D, E], [0, T]], with the
thin SVD D = U S Wᵀ of rank r. Under the fleet's model, coordinate by coordinate:

    dynamics   δ = UᵀE - S WᵀΘ̂ᵀ has covariance σ² (I + CᵀC), C = R⁻ᵀ W S, with the uncertainty
               of the others' fit; ‖(I + CᵀC)^(-1/2) δ‖² / (r σ̂²) ~ F(r, ν)
    noise      what no Θ at all explains, ‖T‖² + ‖(I - UUᵀ)E‖², over (n - r) σ̂² ~ F(n - r, ν)
    whiteness  successive residuals are uncorrelated: Student's t of their correlation

σ̂² and ν are the others' residual variance and degrees of freedom. The smallest of the p-values of
a machine, times their number, is its p-value; over machines Holm's rule keeps the chance of naming
any good machine below `level`. All assume Gaussian noise: with heavy tails the noise test names too
many.

One bad machine spoils the fit that the good ones are tested against. So a core of three quarters of
the machines that agree best is found first; it then grows by every machine that is not named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy import ndarray as Array
from scipy import special

from contextual_lqr.belief.decoder import Decoder
from contextual_lqr.belief.factors import solve_triangle, triangle
from contextual_lqr.data.machine_factors import FactorsByMachine, MachineFactors

LEAST_MACHINES = 4
LEAST_PAIRS = 20
LEVEL = 0.01
_FLOOR = 1e-3  # of the noise level: a coordinate with less is exact, but for rounding and λ


@dataclass(frozen=True)
class MachineReport:
    """One machine: its p-value, corrected for the number of machines, and the strongest reason."""

    label: str
    episodes: int
    rows: int
    p_value: float
    log_p_value: float
    reason: str
    named: bool
    local_error: float  # root mean square on held-out steps, in standard deviations of the noise
    fleet_error: float

    @property
    def local_is_better(self) -> bool:
        """Whether a fit of this machine alone predicts its held-out steps better."""
        return self.local_error < self.fleet_error


@dataclass(frozen=True, repr=False)
class MisfitReport:
    """All machines, the worst first; if the alarm did not run, none, and `not_run` says why."""

    machines: tuple[MachineReport, ...] = ()
    not_run: str = ""
    set_aside: tuple[str, ...] = ()  # the machines that were left out of the fit

    @property
    def named(self) -> tuple[MachineReport, ...]:
        """Those that do not obey the fleet's model."""
        return tuple(one for one in self.machines if one.named)

    def __str__(self) -> str:
        labels = "".join(f", {one.label!r}" for one in self.named[:5])
        said = f"{len(self.named)} of {len(self.machines)} machines stand out{labels}"
        return self.not_run or said

    def __repr__(self) -> str:
        return f"<MisfitReport: {self}>"


def find_misfits(
    factors: FactorsByMachine,
    empty: Decoder,
    state_names: Sequence[str],
    *,
    before: Decoder | None = None,
    level: float = LEVEL,
) -> MisfitReport:
    """Test every machine; `empty` is a new decoder of the fleet, `before` what it knew earlier."""
    machines = factors.machines
    if factors.too_many:
        return MisfitReport(
            not_run="there are too many machines for the misfit alarm; a column `machine` says "
            "which episodes are of one"
        )
    if len(machines) < LEAST_MACHINES:
        return MisfitReport(not_run=f"the misfit alarm needs at least {LEAST_MACHINES} machines")
    fleet = _Fleet(machines, empty, before)
    accepted = fleet.core(0.75)
    for _ in range(20):
        tested = fleet.tests(accepted)
        log_p = _holm(np.array([one.log_p for one in tested]))
        grown = log_p > np.log(level)
        if (grown == accepted).all():
            break
        accepted = grown
    reports = [
        MachineReport(
            machine.name,
            machine.episodes,
            sum(machine.rows),
            float(np.exp(log_p[i])),
            float(log_p[i]),
            one.reason(state_names),
            bool(log_p[i] <= np.log(level)),
            *fleet.held_out(i, one),
        )
        for i, (machine, one) in enumerate(zip(machines, tested, strict=True))
    ]
    return MisfitReport(tuple(sorted(reports, key=lambda one: one.log_p_value)))


def fit_without(
    factors: FactorsByMachine, named: Sequence[str], empty: Decoder, before: Decoder | None
) -> Decoder:
    """What the other machines teach, and what was learnt before."""
    decoder = empty.copy() if before is None else before.copy()
    for one in factors.machines:
        if one.name not in named:
            decoder.merge(_decoder(empty, one.factor, sum(one.rows), one.episodes, one.ignored))
    return decoder


@dataclass(frozen=True)
class _Test:
    """The outcome for one machine."""

    log_p: float  # of all tests together
    kind: str
    coordinate: int
    size: float
    others: Decoder

    def reason(self, names: Sequence[str]) -> str:
        name = names[self.coordinate]
        if self.kind == "dynamics":
            return f"'{name}' does not behave as the fleet predicts"
        if self.kind == "noise":
            return f"the noise of '{name}' is {self.size:.3g} times the fleet's"
        return f"successive errors of '{name}' are correlated, by {self.size:+.2f}"


class _Fleet:
    """Machines, and the fits of all others for each of them."""

    def __init__(
        self, machines: Sequence[MachineFactors], empty: Decoder, before: Decoder | None
    ) -> None:
        self.machines, self.empty, self.before = machines, empty, before
        self.factors = [one.factor for one in machines]
        self.rows = np.array([sum(one.rows) for one in machines])

    def core(self, share: float) -> Array:
        """The machines, so many, that agree best with each other."""
        n = len(self.machines)
        accepted = np.ones(n, bool)
        for _ in range(2):
            log_p = np.array([one.log_p for one in self.tests(accepted)])
            best = np.zeros(n, bool)
            best[np.argsort(-log_p, kind="stable")[: int(np.ceil(share * n))]] = True
            if (best == accepted).all():
                break
            accepted = best
        return accepted

    def tests(self, accepted: Array) -> list[_Test]:
        """Every machine against the accepted ones but itself."""
        n, size = len(self.machines), self.factors[0].shape[1]
        nothing = np.zeros((size, size))
        base = nothing if self.before is None else self.before.state()[1]["data"]
        base = nothing if base.size == 0 else base
        rows = 0 if self.before is None else self.before.rows
        parts = [f if a else nothing for f, a in zip(self.factors, accepted, strict=True)]
        after = [nothing] * n  # of the machines after each; with those before, all but itself
        for i in range(n - 2, -1, -1):
            after[i] = triangle(after[i + 1], parts[i + 1])
        total = rows + int(self.rows[accepted].sum())
        tests, until = [], base
        for i in range(n):
            others = triangle(until, after[i])
            fitted = _decoder(self.empty, others, total - int(self.rows[i] * accepted[i]))
            tests.append(_tested(self.machines[i], self.factors[i], fitted))
            until = triangle(until, parts[i])
        return tests

    def held_out(self, i: int, test: _Test) -> tuple[float, float]:
        """Errors of the local and of the fleet's fit on steps that they have not seen."""
        machine, variance = self.machines[i], _variance(test.others)[0]
        free = [k for k in range(len(variance)) if k not in self.empty.known]
        squares, count = np.zeros(2), 0
        for learnt, judged in ((0, 1), (1, 0)):
            seen = _decoder(self.empty, machine.halves[learnt], machine.rows[learnt])
            both = triangle(test.others.state()[1]["data"], machine.halves[learnt])
            joint = _decoder(self.empty, both, test.others.rows + machine.rows[learnt])
            for which, fit in enumerate((seen, joint)):
                wrong = _residual(machine.halves[judged], fit.estimate)
                squares[which] += ((wrong**2).sum(0) / variance)[free].sum()
            count += machine.rows[judged] * len(free)
        local, fleet = np.sqrt(squares / max(count, 1))
        return float(local), float(fleet)


def _decoder(
    empty: Decoder, factor: Array, rows: int, episodes: int = 0, ignored: int = 0
) -> Decoder:
    """A decoder that has learnt what the factor says."""
    state, _ = empty.state()
    d = (empty.context_map.shape or (0, 0, 0))[1]
    state |= {"rows": rows, "episodes": episodes, "ignored_rows": ignored}
    state |= {"sizes": (factor.shape[1] - d, d), "machines": None}
    arrays = {"data": factor, "digests": np.zeros(0, np.uint64)}
    return Decoder.from_state(state, arrays, empty.context_map, "the factor")


def _variance(others: Decoder) -> tuple[Array, Array]:
    """Of the noise of each coordinate; and which coordinates have any."""
    floor, found = (_FLOOR * others.noise_level) ** 2, np.diagonal(others.noise_estimate)
    return np.asarray(np.maximum(found, floor)), np.asarray(found > floor)


def _residual(factor: Array, theta: Array) -> Array:
    """A matrix with the squares and products of x' - Θz over the rows of the factor."""
    p = theta.shape[1]
    return np.asarray(factor[:, p:] - factor[:, :p] @ theta.T)


def _tested(machine: MachineFactors, factor: Array, others: Decoder) -> _Test:
    theta, R = others.estimate, others.factor
    d, p = theta.shape
    D, E, T = factor[:p, :p], factor[:p, p:], factor[p:, p:]
    n, (variance, noisy) = sum(machine.rows), _variance(others)
    freedom = max(others.rows - p, 1)
    lengths = np.linalg.norm(D, axis=0)
    scaled = np.where(lengths > 0, lengths, 1)
    U, spread, _ = np.linalg.svd(D / scaled)
    r = int((spread > 1e-10 * max(spread[0], 1e-300)).sum())
    seen = U[:, :r].T @ D  # S Wᵀ, (r, p)
    delta = U[:, :r].T @ (E - D @ theta.T)
    C = solve_triangle(R, np.asfortranarray(seen.T), transposed=True)
    root = triangle(np.eye(r), C) if r else np.eye(0)  # rootᵀ root = I + CᵀC
    white = solve_triangle(root, delta, transposed=True) if r else delta
    for i in others.known:
        white[:, i] = delta[:, i]  # what is known has no uncertainty
    names: list[tuple[str, int, float]] = []
    logs: list[Array] = []

    def judged(kind: str, which: Array, log_p: Array, sizes: Array) -> None:
        names.extend((kind, int(k), float(size)) for k, size in zip(which, sizes, strict=True))
        logs.append(log_p)

    every, some = np.arange(d), np.flatnonzero(noisy)
    if r and n > r:
        F = (white**2).sum(0) / (r * variance)
        judged("dynamics", every, _log_upper_tail(F, r, freedom), F)
        left = (T**2).sum(0) + ((U[:, r:].T @ E) ** 2).sum(0)
        F = (left / ((n - r) * variance))[some]
        upper, lower = _log_upper_tail(F, n - r, freedom), _log_upper_tail(1 / F, freedom, n - r)
        judged("noise", some, np.minimum(upper, lower) + np.log(2), np.sqrt(F))
    if machine.pairs >= LEAST_PAIRS:
        size = len(factor)
        now, then = machine.lagged[:, :size], machine.lagged[:, size:]
        a, b = _residual(now, theta)[:, some], _residual(then, theta)[:, some]
        rho = (a * b).sum(0) / np.sqrt((a * a).sum(0) * (b * b).sum(0))
        free = machine.pairs - 2
        squared_t = rho**2 * free / np.maximum(1 - rho**2, 1e-12)
        judged("whiteness", some, _log_upper_tail(squared_t, 1, free), rho)
    if not names:
        return _Test(0.0, "dynamics", 0, 0.0, others)
    log_p = np.concatenate(logs)
    least = int(log_p.argmin())
    return _Test(min(float(log_p[least]) + np.log(len(names)), 0.0), *names[least], others)


def _log_upper_tail(F: Array, above: int, below: int) -> Array:
    """log P(F(above, below) > F), also where the probability is no longer a double.

    It is the incomplete beta function I_x(a, b) at x = below / (below + above F); for small x,
    x^a (1 - x)^b / (a B(a, b)).
    """
    with np.errstate(divide="ignore"):
        x = below / (below + above * F)
        a, b = below / 2, above / 2
        tail = special.betainc(a, b, x)
        leading = a * np.log(x) + b * np.log1p(-x) - np.log(a) - special.betaln(a, b)
        small = tail <= 1e-280
        return np.asarray(np.where(small, leading, np.log(np.maximum(tail, 1e-300))))


def _holm(log_p: Array) -> Array:
    """Holm's correction for the number of tests, of logarithms."""
    order = np.argsort(log_p)
    n = len(log_p)
    stepped = np.maximum.accumulate(log_p[order] + np.log(n - np.arange(n)))
    corrected = np.empty(n)
    corrected[order] = np.minimum(stepped, 0.0)
    return corrected
