"""Run by test_build.py with kernels built for the purpose: `sanitized_kernels.py native.so`.

Every size, batch remainder, optional operand and failure goes through these kernels (sanitized, or
in plain C++17), and the results are compared with the reference.
"""

import importlib.util
import itertools
import sys

import numpy as np

spec = importlib.util.spec_from_file_location("contextual_lqr.kernels.native", sys.argv[1])
sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules[spec.name])

from contextual_lqr.kernels import bindings, reference  # noqa: E402  (with these kernels)

rng = np.random.default_rng(0)
sizes = [(1, 1), (2, 1), (3, 2), (4, 1), (4, 2), (5, 2), (6, 2), (6, 3), (7, 9), (24, 3), (25, 5)]
for (d, m), batch, horizon in itertools.product(sizes, (1, 3, 4, 6), (1, 2, 5)):
    stage = rng.normal(size=(batch, horizon, d + m, d + m))
    stage = stage @ stage.swapaxes(-1, -2)
    Q, R, N = stage[..., :d, :d], stage[:, 1:, d:, d:], stage[:, 1:, :d, d:]
    A, B, start = (rng.normal(size=(batch, *shape)) for shape in ((d, d), (d, m), (d,)))
    A[0] *= 1e200 if batch == 3 else 1  # one that fails
    policy = rng.normal(size=(batch, horizon - 1, m, d))
    noise = stage[:, 0, :d, :d]
    for shared, cross, given in itertools.product((True, False), repeat=3):
        count = slice(1) if shared else slice(None)
        arrays = [np.ascontiguousarray(array[count]) for array in (Q, R, N, noise, start)]
        if not cross:
            arrays[2] = None
        wanted = {"batch": batch, "start": arrays.pop(), "gains": True, "values": True}
        wanted |= {"policy": policy, "dither": R.copy()} if given else {"gradient": True}
        if given != shared:
            rows = start[..., None, None] ** 2 * stage[:, :1]
            wanted |= {"covariances": rows, "gradient": False}
        found = bindings.recursions(A, B, *arrays, threads=2, **wanted)
        right = reference.recursions(A, B, *arrays, **wanted)
        assert (found.status == right.status).all()
        assert np.allclose(found.cost, right.cost, rtol=1e-6)
for (d, m), batch in itertools.product(((1, 1), (3, 1), (5, 2), (6, 1)), (1, 5)):  # wild ones
    A, B = 20 * rng.normal(size=(batch, d, d)), rng.normal(size=(batch, d, m))
    stages = (np.array([[np.eye(d)] * 15]), np.array([[np.eye(m)] * 14]), None, np.eye(d)[None])
    wanted = {"batch": batch, "start": np.ones((1, d)), "gains": True}
    found = bindings.recursions(A, B, *stages, **wanted, values=True, gradient=True)
    right = reference.recursions(A, B, *stages, **wanted)
    assert (found.status == right.status).all()
    assert np.allclose(found.cost, right.cost, rtol=1e-6)
    assert np.allclose(found.gains, right.gains, rtol=1e-6)
for rows, block, n in itertools.product((1, 3, 17, 100), (1, 16, 40), (1, 2, 5, 12)):
    columns = rng.normal(size=(n + 3, rows)) + 1
    for chosen in (None, np.flatnonzero(rng.random(rows) < 0.7)):
        parts = bindings.factor_blocks(list(columns), chosen, block, 1e9)
        whole = (columns if chosen is None else columns[:, chosen]).T
        assert parts is None or np.allclose(
            sum(R.T @ R for R in parts), whole.T @ whole, rtol=1e-9, atol=1e-9
        )
counts = ((1,), (0, 3, 40), (300, 7), (19,) * 9, (70,) * 4)
for n, lengths in itertools.product((1, 2, 5, 12), counts):
    ends = np.cumsum(lengths)
    columns = rng.normal(size=(n, ends[-1])) * 10.0 ** rng.uniform(-6, 6, ends[-1])
    packed = np.zeros((len(ends), n * (n + 1) // 2))
    at, rows = np.arange(len(ends)), np.arange(ends[-1])
    for _ in range(2):
        used = bindings.update_triangles(list(columns), rows, ends, 1e9, packed, at)
        assert used.tolist() == list(lengths)
    for y in {1, n}:
        acting = rng.integers(0, y + 1).item()
        k = 6 * y + 1 + 2 * (y - acting) + n - y
        packed, steps = np.zeros((len(ends) + 2, k * (k + 1) // 2)), np.arange(ends[-1]) % 9
        for _ in range(2):
            bindings.update_triangles(
                list(columns), rows, ends, 1e9, packed, at + 2, steps, y, acting
            )
keys, slots = rng.integers(0, 2**63, 100).astype(np.uint64), np.full(128, -1, np.int32)
bindings.enter_keys(keys, slots, np.arange(100))
assert bindings.find_keys(keys, slots, keys).tolist() == list(range(100))
assert bindings.find_keys(keys, slots, keys + np.uint64(1)).tolist() == [-1] * 100
for n, q, k in itertools.product((0, 1, 5), (1, 2, 7), (1, 3)):
    L, right = np.tril(rng.uniform(1, 2, (n, q, q))), rng.normal(size=(n, q, k))
    assert np.allclose(L @ bindings.solve_lower(L, right), right)
for n, count in itertools.product((1, 2, 5, 12), (1, 3, 12, 40)):
    rows = rng.normal(size=(count, n)) * 10.0 ** rng.uniform(-6, 6, (count, 1))
    R = bindings.factor_rows(rows)
    assert R is not None
    assert np.allclose(R.T @ R, rows.T @ rows, rtol=1e-9)
for (d, m), n, p in itertools.product(((1, 1), (5, 2), (25, 3)), (0, 1, 7), (1, 7)):
    Y, centre, G = (rng.normal(size=shape) for shape in ((n, d, p), (d, p), (p, d + m)))
    R = np.triu(rng.uniform(1, 2, (p, p)))
    arguments = (R, centre, 0.1, rng.random(n))
    thetas = reference.sample_ellipsoid(Y, *arguments)
    assert np.allclose(bindings.sample_ellipsoid(Y, *arguments), thetas)
    Q, R = np.array([np.eye(d)] * 4), np.array([np.eye(m)] * 3)
    operands = (thetas, G, Q, R, None, np.eye(d), np.ones(d), 0.0)
    best = bindings.best_decoder(*operands)
    assert best.which == reference.best_decoder(*operands).which
    A, B = rng.normal(size=(d, d)), rng.normal(size=(d, m))
    for offsets, bound in itertools.product((None, np.ones((3, m))), (None, np.ones(d))):
        episode = (A, B, rng.normal(size=(3, m, d)), np.ones(d) / 2, rng.normal(size=(3, d)))
        options = {"offsets": offsets, "bound": bound}
        played = bindings.roll_out(*episode, **options)
        expected = reference.roll_out(*episode, **options)
        assert all(map(np.allclose, played, expected))
print("sound")  # noqa: T201
