"""The compiled recursions: the same as the reference, and the same bits in any company."""

import inspect
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy import ndarray as Array

from contextual_lqr import kernels
from contextual_lqr.belief import factors
from contextual_lqr.belief.evidence.digests import stretch_digests
from contextual_lqr.errors import InputError
from contextual_lqr.kernels import (
    NOT_FINITE,
    NOT_POSITIVE_DEFINITE,
    SOLVED,
    Outcome,
    reference,
    tables_reference,
)
from problems import random_covariance, random_dynamics, random_stages, seeds

if kernels.compiled is not None:
    from contextual_lqr.kernels import bindings

# Both add up the same numbers, in another order: 1e-13 was seen. A single input that hardly reaches
# an unstable mode makes P huge, and lifts that: 1e-8 was seen.
TOLERANCE, UNSTABLE_TOLERANCE = 1e-11, 1e-6
EVERYTHING = {"gains": True, "values": True, "gradient": True}
OPERANDS = ("A", "B", "Q", "R", "N", "noise", "start", "policy")
SPECIALISED = [(2, 1), (4, 1), (4, 2), (5, 2), (6, 2), (6, 3)]
GENERAL = [(1, 1), (2, 3), (3, 2), (7, 4), (8, 1), (11, 5), (15, 9), (3, 18)]
LARGE = [(16, 1), (17, 3), (23, 8), (24, 1), (24, 4), (25, 9), (33, 7), (64, 2)]
SIZES = SPECIALISED + GENERAL + LARGE

Native = Callable[..., Outcome]


@pytest.fixture(scope="module")
def native() -> Native:
    if kernels.compiled is None:
        if os.environ.get("CONTEXTUAL_LQR_NO_NATIVE"):
            pytest.skip("CONTEXTUAL_LQR_NO_NATIVE is set")
        pytest.fail(
            "the compiled kernels are missing; set CONTEXTUAL_LQR_NO_NATIVE if that is meant"
        )
    return bindings.recursions


def random_operands(
    rng: np.random.Generator,
    d: int,
    m: int,
    H: int,
    batch: int,
    shared: tuple[str, ...] = (),
    absent: tuple[str, ...] = ("policy",),
    radius: float = 1.2,
) -> dict[str, Any]:
    """The arguments of `recursions`: each operand has `batch` members, or one if it is shared."""
    A, B = random_dynamics(rng, d, m, radius, (batch,))
    Q, R, N = random_stages(rng, d, m, H, d, (batch,))
    made = {
        **{"A": A, "B": B, "Q": Q, "R": R, "N": N},
        "noise": random_covariance(rng, d, "full", (batch,)),
        "start": rng.standard_normal((batch, d)),
        "policy": rng.standard_normal((batch, H - 1, m, d)) / (d + m),
    }
    made = {name: M[:1] if name in shared else M for name, M in made.items()}
    if {"Q", "R", "N"} & set(
        shared
    ):  # N was made for the Q and R of its member: keep them together
        made |= {"Q": Q[:1], "R": R[:1], "N": N[:1]}
    for name in OPERANDS:
        made[name] = None if name in absent else np.ascontiguousarray(made[name])
    return {**made, "batch": batch}


def spoil(operands: dict[str, Any], member: int, how: str) -> None:
    """Give this member a problem without solution."""
    if how == "NaN":
        operands["A"][member, 0, 0] = np.nan
    elif how == "overflow":
        operands["A"][member] = 1e200
    elif how == "indefinite":
        operands["R"][member, :, 0, 0] = -1e6


def alone(operands: dict[str, Any], member: int) -> dict[str, Any]:
    """The problem of one member."""
    own = {
        name: M if M is None or len(M) == 1 else np.ascontiguousarray(M[member : member + 1])
        for name, M in operands.items()
        if name in OPERANDS
    }
    return {**own, "batch": 1}


def assert_close(found: Outcome, expected: Outcome, tolerance: float = TOLERANCE) -> None:
    """Every member of every output, relative to the largest entry of that member."""
    for name, a, b in zip(Outcome._fields, found, expected, strict=True):
        assert (a is None) == (b is None), name
        if a is None:
            continue
        assert a.shape == b.shape, name
        for i in range(len(a)):
            largest = np.abs(b[i]).max(initial=0.0)
            atol = tolerance * largest if np.isfinite(largest) else 0.0
            atol += 16 * np.finfo(float).smallest_subnormal  # numbers this small have few digits
            np.testing.assert_allclose(a[i], b[i], rtol=0, atol=atol, err_msg=f"{name}[{i}]")
    np.testing.assert_array_equal(found.status, expected.status)
    np.testing.assert_array_equal(found.failed_step, expected.failed_step)


def assert_same_bits(found: Outcome, expected: Outcome) -> None:
    for name, a, b in zip(Outcome._fields, found, expected, strict=True):
        if a is not None and b is not None:
            assert a.dtype == b.dtype, name
            assert a.shape == b.shape, name
            assert a.tobytes() == b.tobytes(), name


def member_of(outcome: Outcome, i: int) -> Outcome:
    return Outcome(*(None if M is None else M[i : i + 1] for M in outcome))


@given(
    size=st.sampled_from(SIZES),
    H=st.integers(1, 25),
    batch=st.integers(1, 9),
    shared=st.sets(st.sampled_from(OPERANDS)),
    absent=st.sets(st.sampled_from(["N", "noise", "policy"])),
    beta=st.floats(0, 2),
    failures=st.lists(st.sampled_from(["NaN", "overflow", "indefinite"]), max_size=2),
    seed=seeds,
)
@settings(max_examples=50)
def test_native_is_the_reference(native, size, H, batch, shared, absent, beta, failures, seed):
    rng = np.random.default_rng(seed)
    operands = random_operands(rng, *size, H, batch, tuple(shared), tuple(absent), beta)
    for how in failures:
        spoil(operands, int(rng.integers(len(operands["R" if how == "indefinite" else "A"]))), how)
    expected = reference.recursions(**operands, **EVERYTHING)
    tolerance = TOLERANCE if beta <= 1.2 else UNSTABLE_TOLERANCE
    assert_close(native(**operands, **EVERYTHING), expected, tolerance)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("absent", [("policy",), ("N", "noise", "policy"), ("noise",)], ids=str)
def test_native_is_the_reference_at_every_size(native, size, absent):
    rng = np.random.default_rng(sum(size))
    for batch in range(1, 10) if size in SPECIALISED else (1, 3, 6):
        operands = random_operands(rng, *size, 7, batch, ("Q", "noise"), absent)
        found = native(**operands, **EVERYTHING)
        assert (found.status == SOLVED).all()
        assert_close(found, reference.recursions(**operands, **EVERYTHING))


@pytest.mark.parametrize(
    ("how", "status", "step"),
    [
        ("NaN", NOT_FINITE, 8),
        ("overflow", NOT_FINITE, 8),
        ("indefinite", NOT_POSITIVE_DEFINITE, 8),
    ],
)
@pytest.mark.parametrize("run", ["native", "reference"])
@pytest.mark.parametrize("size", [(5, 2), (7, 3), (17, 3)], ids=str)
def test_a_failure_is_marked_and_blanked_out(native, size, run, how, status, step):
    operands = random_operands(np.random.default_rng(1), *size, 9, 6)
    spoil(operands, 2, how)
    found = (native if run == "native" else reference.recursions)(**operands, **EVERYTHING)
    np.testing.assert_array_equal(found.status, [0, 0, status, 0, 0, 0])
    np.testing.assert_array_equal(found.failed_step, [0, 0, step, 0, 0, 0])
    for blank in (found.gains, found.values, found.dA, found.dB):
        assert np.isnan(blank[2]).all()
        assert np.isfinite(np.delete(blank, 2, 0)).all()
    for infinite in (found.constants, found.cost):
        assert (infinite[2] == np.inf).all()
        assert np.isfinite(np.delete(infinite, 2, 0)).all()


@given(
    size=st.sampled_from(SIZES[:-1]),
    batch=st.integers(2, 9),
    shared=st.sets(st.sampled_from(["B", "noise", "start", "policy"])),
    absent=st.sets(st.sampled_from(["N", "noise", "policy"])),
    failures=st.lists(st.sampled_from(["NaN", "overflow", "indefinite"]), max_size=3),
    seed=seeds,
)
def test_a_member_does_not_depend_on_its_neighbours(
    native, size, batch, shared, absent, failures, seed
):
    rng = np.random.default_rng(seed)
    operands = random_operands(rng, *size, 6, batch, tuple(shared), tuple(absent))
    for how in failures:
        spoil(operands, int(rng.integers(batch)), how)
    together = native(**operands, **EVERYTHING)
    for i in range(batch):
        assert_same_bits(member_of(together, i), native(**alone(operands, i), **EVERYTHING))


@pytest.mark.parametrize(
    ("size", "H", "batch"), [((5, 2), 20, 4003), ((3, 2), 60, 4505), ((20, 5), 20, 83)], ids=str
)
def test_a_result_does_not_depend_on_the_number_of_threads(native, size, H, batch):
    d, m = size
    assert (3 * d**3 + 8 * d * d * m) * H * batch >= 3 * 2e7, "too little work for three threads"
    operands = random_operands(np.random.default_rng(7), d, m, H, batch, ("Q", "N", "R"))
    for member in (0, 1, batch // 3, batch // 2, batch - 1):
        spoil(operands, member, "NaN")
    one = native(**operands, **EVERYTHING, threads=1)
    assert np.count_nonzero(one.status) == 5
    for threads in (2, 3):
        assert_same_bits(native(**operands, **EVERYTHING, threads=threads), one)
    for member in (2, batch // 2 + 1, batch - 2):
        assert_same_bits(member_of(one, member), native(**alone(operands, member), **EVERYTHING))


@pytest.mark.parametrize("size", [(5, 2), (7, 3), (17, 3)], ids=str)
@pytest.mark.parametrize("absent", [("policy",), ("N", "noise")], ids=str)
def test_what_is_asked_for_alone_is_what_is_found_together(native, size, absent):
    operands = random_operands(np.random.default_rng(3), *size, 9, 6, absent=absent)
    spoil(operands, 4, "overflow")
    together = native(**operands, **EVERYTHING)
    no_start = {**operands, "start": None}
    for gains, values, gradient in product((False, True), repeat=3):
        found = native(**operands, gains=gains, values=values, gradient=gradient)
        asked = [gains, values, values, True, gradient, gradient, True, True]
        assert [M is not None for M in found] == asked
        assert_same_bits(found, together)
        found = native(**no_start, gains=gains, values=values)
        assert found.cost is None
        assert_same_bits(found, together)


def random_covariances(rng: np.random.Generator, d: int, m: int, batch: int) -> Array:
    """One for each row of [A, B], each another."""
    sizes = 0.1 * rng.random((batch, d, 1, 1))
    return sizes * random_covariance(rng, d + m, "full", (batch, d))


@pytest.mark.parametrize("shared", [(), ("covariances",), ("A", "Q")], ids=str)
@pytest.mark.parametrize("size", [(2, 1), (3, 2), (5, 2), (8, 1), (17, 9), (25, 3)], ids=str)
def test_native_is_the_reference_where_the_system_is_uncertain(native, size, shared):
    rng = np.random.default_rng([*size, len(shared)])
    for batch, H in ((1, 2), (3, 7), (9, 12)):
        operands = random_operands(rng, *size, H, batch, shared)
        covariances = random_covariances(rng, *size, batch)
        operands["covariances"] = covariances[:1] if "covariances" in shared else covariances
        expected = reference.recursions(**operands, gains=True, values=True)
        found = native(**operands, gains=True, values=True)
        assert (found.status == SOLVED).all()
        assert_close(found, expected, 1e-10)
        assert_same_bits(native(**operands, gains=True, values=True, threads=2), found)
        operands["policy"] = 0.9 * found.gains
        expected = reference.recursions(**operands, values=True)
        assert_close(native(**operands, values=True), expected, 1e-10)


@pytest.mark.parametrize("optimal", [True, False])
def test_covariances_are_what_systems_that_vary_cost(native, optimal):
    """The expected cost against rollouts with [A, B] drawn anew at each step, row by row."""
    rng, d, m, H, n = np.random.default_rng(1), 3, 2, 8, 100_000
    made = random_operands(rng, d, m, H, 1, (), ("policy",) if optimal else (), radius=0.9)
    C = random_covariances(rng, d, m, 1)
    found = native(**made, covariances=C, gains=True)
    gains = found.gains[0]
    if optimal:  # no other gains are better
        for _ in range(20):
            other = (gains + 0.1 * rng.standard_normal(gains.shape))[None]
            worse = native(**{**made, "policy": other}, covariances=C)
            assert worse.cost[0] > found.cost[0]
    L, M = np.linalg.cholesky(C[0]), np.concatenate((made["A"][0], made["B"][0]), 1)
    Q, R, N = (made[name][0] for name in "QRN")
    noise = np.linalg.cholesky(made["noise"][0])
    x, total = np.broadcast_to(made["start"], (n, d)), np.zeros(n)
    for h in range(H - 1):
        y = np.concatenate((x, x @ gains[h].T), 1)
        stage = np.block([[Q[h], N[h]], [N[h].T, R[h]]])
        total += np.einsum("ni,ij,nj->n", y, stage, y)
        deviation = np.einsum("iab,nib->nia", L, rng.standard_normal((n, d, d + m)))
        x = np.einsum("nij,nj->ni", M + deviation, y) + rng.standard_normal((n, d)) @ noise.T
    total += np.einsum("ni,ij,nj->n", x, Q[-1], x)
    error = total.std() / np.sqrt(n)
    assert abs(total.mean() - found.cost[0]) < 4 * error
    certain = native(**{**made, "policy": gains[None]}).cost[0]
    assert total.mean() - certain > 20 * error


def raw_arguments(d: int = 3, m: int = 2, H: int = 4, batch: int = 5) -> dict[str, Any]:
    """The arguments of the compiled function itself, by name."""
    operands = random_operands(np.random.default_rng(0), d, m, H, batch, absent=())
    out = {
        "gains": np.empty((batch, H - 1, m, d)),
        "values": np.empty((batch, H, d, d)),
        "constants": np.empty((batch, H)),
        "cost": np.empty(batch),
        "dA": np.empty((batch, d, d)),
        "dB": np.empty((batch, d, m)),
        "status": np.empty(batch, np.int8),
        "failed_step": np.empty(batch, np.int32),
    }
    out |= {"dither": np.empty((batch, H - 1, m, m)), "covariances": None}
    return {**operands, **out, "d": d, "m": m, "horizon": H, "refine": True, "threads": 1}


ARRAYS = (*OPERANDS, *Outcome._fields)


def one_number_fewer(M: Array) -> Array:
    return np.ascontiguousarray(M.ravel()[:-1])


def one_member_more(M: Array) -> Array:
    return np.concatenate([M, M[:1]])


def nothing(M: Array) -> Array:
    return M[:0]


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("resize", [one_number_fewer, one_member_more, nothing])
def test_the_door_refuses_a_wrong_size(native, name, resize):
    door, arguments = bindings.native.recursions, raw_arguments()
    door(**arguments)
    arguments[name] = resize(arguments[name])
    with pytest.raises(ValueError, match="wrong size"):
        door(**arguments)


@pytest.mark.parametrize("name", Outcome._fields)
def test_the_door_refuses_a_shared_result(native, name):
    arguments = raw_arguments()
    arguments[name] = np.ascontiguousarray(arguments[name][:1])
    with pytest.raises(ValueError, match="wrong size"):
        bindings.native.recursions(**arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d": 0}, "positive"),
        ({"m": 0}, "positive"),
        ({"m": -1}, "positive"),
        ({"horizon": 0}, "positive"),
        ({"batch": -1}, "positive"),
        ({"batch": 6}, "wrong size"),
        ({"d": 2}, "wrong size"),
        ({"horizon": 5}, "wrong size"),
        ({"start": None}, "needs a start"),
        ({"dB": None}, "go together"),
        ({"dA": None}, "go together"),
        ({"covariances": np.zeros((5, 3, 5, 5))}, "no gradient"),
        ({"covariances": np.zeros((5, 2, 5, 5))}, "wrong size"),
        ({"covariances": np.zeros((5, 3, 4, 4))}, "wrong size"),
        ({"dither": np.zeros((5, 3, 2))}, "wrong size"),
        ({"policy": None}, "for a policy that is given"),
    ],
    ids=str,
)
def test_the_door_refuses_what_does_not_fit_together(native, change, message):
    with pytest.raises(ValueError, match=message):
        bindings.native.recursions(**{**raw_arguments(), **change})


def in_single_precision(M: Array) -> Array:
    return M.astype(np.float32)


def with_gaps(M: Array) -> Array:
    return np.repeat(M, 2, axis=-1)[..., ::2]


def backwards(M: Array) -> Array:
    return np.ascontiguousarray(M[..., ::-1])[..., ::-1]


LAYOUTS = [np.asfortranarray, with_gaps, backwards]


@pytest.mark.parametrize("name", Outcome._fields)
@pytest.mark.parametrize("other", [in_single_precision, with_gaps])
def test_the_door_refuses_a_result_it_would_have_to_copy(native, name, other):
    arguments = raw_arguments()
    arguments[name] = other(arguments[name])
    with pytest.raises(TypeError):  # a converted copy would be filled, and lost
        bindings.native.recursions(**arguments)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_operands_may_lie_in_memory_as_they_like(native, layout):
    rng, d, m, p, H = np.random.default_rng(4), 5, 2, 4, 6
    made = random_operands(rng, d, m, H, 3, absent=())
    Q, R, N, W, x = (made[name][0] for name in ("Q", "R", "N", "noise", "start"))
    thetas, G = rng.normal(size=(7, d, p)) / d, rng.normal(size=(p, d + m))
    triangle, shocks = np.triu(rng.uniform(1, 2, (p, p))), rng.normal(size=(H - 1, d))
    names, limits = ("A", "B", "gains", "start", "shocks", "offsets", "bound"), np.full(d, 9.0)
    played = (made["A"][0], made["B"][0], made["policy"][0], x, shocks, shocks[:, :m], limits)
    episode, chosen = dict(zip(names, played, strict=True)), np.arange(0, 40, 3)
    calls = [
        (native, made | {"dither": R[None]} | EVERYTHING),
        (native, {**made, "covariances": random_covariances(rng, d, m, 3), "values": True}),
        (bindings.best_decoder, (thetas, G, Q, R, N, W, x, 0.0)),
        (bindings.roll_out, episode),
        (bindings.sample_ellipsoid, (thetas, triangle, thetas[0], 2.0, rng.random(7))),
        (bindings.factor_rows, (rng.normal(size=(20, 3)),)),
        (bindings.factor_blocks, (list(rng.uniform(1, 2, (3, 40))), chosen, 9, 3.0)),
    ]

    def moved(one: Any) -> Any:
        if isinstance(one, list):
            return list(layout(np.array(one)))
        return layout(one) if isinstance(one, np.ndarray) else one

    for function, given_ in calls:
        if isinstance(given_, dict):
            expected = function(**given_)
            found = function(**{name: moved(one) for name, one in given_.items()})
        else:
            expected = function(*given_)
            found = function(*map(moved, given_))
        expected, found = ([*r] if isinstance(r, tuple) else [r] for r in (expected, found))
        for a, b in zip(found, expected, strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), function


def test_operands_may_be_other_numbers(native):
    made = random_operands(np.random.default_rng(4), 3, 2, 4, 5)
    made |= {"A": np.round(3 * made["A"]), "B": made["B"].astype(np.float32).astype(float)}
    others = made | {"A": made["A"].astype(np.int64), "B": made["B"].astype(np.float32)}
    assert_same_bits(native(**others, **EVERYTHING), native(**made, **EVERYTHING))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", ["a row of zeros", "sizes that differ 100 000-fold"])
def test_a_block_of_512_rows_has_its_triangle_in_any_layout(layout, sizes):
    rows = np.random.default_rng(0).normal(size=(512, 3))
    rows[100] *= 0.0 if sizes == "a row of zeros" else 1e5
    found = factors.triangle(layout(rows))
    np.testing.assert_array_equal(found, factors.triangle(rows))
    np.testing.assert_allclose(found.T @ found, rows.T @ rows, rtol=1e-12)


@pytest.mark.parametrize("run", ["native", "reference"])
def test_an_empty_batch_has_an_empty_result(native, run):
    operands = random_operands(np.random.default_rng(0), 3, 2, 4, 1)
    empty = {
        name: M[:0] if name in ("A", "start") else M
        for name, M in operands.items()
        if name in OPERANDS and M is not None
    } | {"policy": None}
    found = (native if run == "native" else reference.recursions)(**empty, batch=0, **EVERYTHING)
    assert all(len(M) == 0 for M in found)


@pytest.fixture
def no_forced_switches() -> Iterator[None]:
    """Python hands over to another thread only where the running one gives way."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(100)
    yield
    sys.setswitchinterval(interval)


def test_other_python_threads_run_meanwhile(native, no_forced_switches):
    operands = random_operands(np.random.default_rng(5), 20, 4, 30, 1) | {"batch": 500}
    expected = native(**operands, gradient=True)  # takes long enough to be caught at it
    results: list[Outcome] = []
    begun = threading.Event()

    def work() -> None:
        begun.set()
        results.append(native(**operands, gradient=True))

    worker = threading.Thread(target=work)
    worker.start()
    begun.wait()  # we get to run again only when the worker, inside the call, lets go
    finished_first = bool(results)
    ours = native(**operands, gradient=True)
    worker.join()
    assert not finished_first
    assert_same_bits(ours, expected)
    assert_same_bits(results[0], expected)


SHORT_OF_MEMORY = """
import resource, threading
import numpy as np
from contextual_lqr.kernels import bindings

def solve(d, H, n, threads):
    A, B, Q = np.full((n, d, d), 0.1), np.ones((1, d, 1)), np.zeros((1, H, d, d))
    operands = (A, B, Q, np.ones((1, H - 1, 1, 1)), None, None)
    return bindings.recursions(*operands, start=A[:, 0], batch=n, threads=threads)

def allow(megabytes):
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + megabytes * 2**20, -1))

def begin():
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits a process's memory as Linux does")
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        # Each thread's workspace, 50 MB, is more than can be had: Python is told.
        ("""
allow(30)
begin()
try:
    solve(20, 4000, 8, threads=2)
except MemoryError:
    print("MemoryError", solve(20, 40, 8, threads=2).status.max())
""", "MemoryError 0"),
        # No thread can be had, but the work is done.
        ("""
expected = solve(5, 20, 4003, threads=1)
allow(4)
try:
    begin()
except RuntimeError as why:
    found = solve(5, 20, 4003, threads=3)
    print(why, (found.cost == expected.cost).all())
""", "can't start new thread True"),
    ],
    ids=["no memory", "no thread"],
)  # fmt: skip
def test_a_process_short_of_memory_is_not_ended(native, code, expected):
    done = subprocess.run(
        [sys.executable, "-c", SHORT_OF_MEMORY + code], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == expected, done.stderr


@pytest.mark.parametrize("count", [0, -1, True, "2", 1.5, None], ids=repr)
def test_set_threads_refuses(count):
    before = kernels.threads()
    unchecked = inspect.unwrap(kernels.set_threads)  # before the run-time check of its types
    with pytest.raises(InputError, match="a whole number from 1 to"):
        unchecked(count)
    assert kernels.threads() == before


def test_set_threads_is_what_threads_says():
    before = kernels.threads()
    try:
        for count in (1, 3):
            kernels.set_threads(count)
            assert kernels.threads() == count
    finally:
        kernels.set_threads(before)


@settings(max_examples=30)
@given(seeds, st.integers(1, 6), st.integers(1, 3), st.integers(1, 9), st.booleans())
def test_an_episode_is_played_as_the_reference_plays_it(
    native: Native, seed: int, d: int, m: int, steps: int, dithered: bool
) -> None:
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(d, d)), rng.normal(size=(d, m))
    A *= 1e150 if seed % 5 == 0 else 1  # this overflows
    gains, shocks = rng.normal(size=(steps, m, d)), rng.normal(size=(steps, d))
    start = rng.normal(size=d) * rng.choice([1.0, 1e-8, 1e12])
    offsets = rng.normal(size=(steps, m)) if dithered else None
    bound = rng.uniform(0.5, 20, d) if seed % 2 else None
    episode = (A, B, gains, start, shocks)
    found = bindings.roll_out(*episode, offsets=offsets, bound=bound)
    expected = reference.roll_out(*episode, offsets=offsets, bound=bound)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9 * np.abs(other).max(initial=0))


@settings(max_examples=40)
@given(seeds, st.integers(1, 5), st.integers(1, 7), st.integers(0, 9))
def test_members_of_an_ellipsoid_are_those_of_the_reference(
    native: Native, seed: int, d: int, p: int, n: int
) -> None:
    rng = np.random.default_rng(seed)
    Y, centre = rng.normal(size=(n, d, p)), rng.normal(size=(d, p))
    R = np.triu(rng.normal(size=(p, p))) * 10.0 ** rng.uniform(-4, 4, (p, 1))
    R[np.diag_indices(p)] = np.abs(np.diagonal(R)) + np.abs(R).max(1)
    arguments = (R, centre, float(rng.uniform(0, 100)), rng.random(n))
    expected = reference.sample_ellipsoid(Y, *arguments)
    found = bindings.sample_ellipsoid(Y, *arguments)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@settings(max_examples=40)
@given(seeds, st.sampled_from([(1, 1), (3, 2), (5, 2), (25, 3)]), st.integers(0, 9), st.booleans())
def test_the_best_decoder_is_that_of_the_reference(
    native: Native, seed: int, sizes: tuple[int, int], n: int, cross: bool
) -> None:
    (d, m), H = sizes, 5
    rng = np.random.default_rng(seed)
    thetas, G = rng.normal(size=(n, d, 4)) / d, rng.normal(size=(4, d + m))
    thetas[n // 2 :] *= 1e200 if seed % 3 == 0 else 1  # these cannot be solved
    Q, R, N = random_stages(rng, d, m, H, d, ())
    operands = (Q, R, N if cross else None, random_covariance(rng, d, "full"), rng.normal(size=d))
    costs = [reference.best_decoder(one[None], G, *operands, -np.inf).cost for one in thetas]
    floor = 0.999 * float(np.median(costs)) if n and seed % 2 else -np.inf
    found = bindings.best_decoder(thetas, G, *operands, floor)
    expected = reference.best_decoder(thetas, G, *operands, floor)
    assert found.which == expected.which
    assert found.rejected == expected.rejected
    if found.which >= 0:
        assert found.cost == pytest.approx(expected.cost, rel=1e-8)
        np.testing.assert_allclose(found.gains, expected.gains, rtol=1e-6, atol=1e-6)


def test_rows_of_a_table_are_hashed_and_ranged_as_the_reference_does():
    rng = np.random.default_rng(5)
    floats = [rng.normal(size=1000), np.repeat([0.0, -0.0], 500), rng.normal(size=2000)[::2]]
    hashes = rng.integers(0, 2**63, 1000, dtype=np.uint64)
    table = [*floats, hashes, rng.integers(-5, 5, 1000)]
    assert np.array_equal(kernels.row_hashes(table), tables_reference.row_hashes(table))
    assert len(np.unique(tables_reference.row_hashes(table))) == 1000
    assert len(np.unique(kernels.row_hashes([floats[1]]))) == 1  # -0.0 is 0.0
    starts = np.array([0, 1, 400, 999])
    digests = tables_reference.digests(hashes, starts)
    assert np.array_equal(kernels.digests(hashes, starts), digests)
    sums = np.concatenate([np.cumsum(part) for part in np.split(hashes, starts[1:])])
    assert np.array_equal(digests, stretch_digests(sums))
    rows = np.sort(rng.choice(1000, 300, replace=False))
    floats[2][rows[7]] = np.inf
    for ours, theirs in zip(
        kernels.column_ranges(floats, rows),
        tables_reference.column_ranges(floats, rows),
        strict=True,
    ):
        assert np.array_equal(ours, theirs, equal_nan=True)
        assert np.isnan(ours).tolist() == [False, False, True]


@pytest.mark.parametrize("run", [kernels, tables_reference])
def test_keys_are_found_where_they_stand_and_no_others(run):
    rng = np.random.default_rng(6)
    known = rng.integers(0, 2**64, 300, dtype=np.uint64)
    known[:40] = known[:40] // 512 * 512  # that all ask for one slot
    table, places = np.full(512, -1, np.int32), rng.permutation(300)
    run.enter_keys(known, table, places[:120])
    run.enter_keys(known, table, places[120:250])
    expected = {int(known[i]): i for i in places[:250].tolist()}
    wanted = np.concatenate((known, known + np.uint64(512), rng.permutation(known)))
    found = run.find_keys(known, table, wanted)
    assert found.tolist() == [expected.get(key, -1) for key in wanted.tolist()]


@pytest.mark.parametrize("run", [kernels, tables_reference])
@pytest.mark.parametrize("triangles", [1, 6])
def test_triangles_are_solved_by_forward_substitution(run, triangles):
    rng = np.random.default_rng(7)
    L = np.tril(rng.normal(size=(triangles, 5, 5)) + 3 * np.eye(5))
    right = rng.normal(size=(6, 5, 3))
    found = run.solve_lower(L, right[:, ::-1])
    np.testing.assert_allclose(L @ found, right[:, ::-1], atol=1e-12)
