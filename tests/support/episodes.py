"""Episodes of a small fleet with known Θ, and decoders that have learnt them."""

from typing import Any

import numpy as np

from contextual_lqr import Decoder, FeatureContext, Trajectory

MAP = FeatureContext(["1", "gain"], states=2, inputs=1, bounds={"gain": (0, 1e200)})
THETA = np.array([[0.6, 0.2, 1.0, 0.1, -0.2, 0.3], [-0.1, 0.5, -0.4, 0.3, 0.1, 0.7]])
Episode = tuple[dict[str, float], Trajectory]


def episode(
    rng: np.random.Generator, scale: float = 1, H: int = 5, noise: float = 0.01, push: float = 1
) -> Episode:
    context = {"gain": float(rng.uniform(0, 2))}
    M = THETA @ MAP.matrix(context)
    u = push * scale * rng.standard_normal((H - 1, 1))
    x = [scale * rng.standard_normal(2)]
    for h in range(H - 1):
        x.append(M @ np.append(x[h], u[h]) + noise * rng.standard_normal(2))
    return context, Trajectory(np.array(x), u)


def learnt(episodes: list[Episode], *options: Any, **named: Any) -> Decoder:
    decoder = Decoder(MAP, *options, **named)
    for one in episodes:
        decoder.update(*one)
    return decoder


def snapshot(decoder: Decoder) -> dict[str, Any]:
    """All that a decoder is, to the bit."""
    state, arrays = decoder.state()
    bits = {name: (array.shape, array.tobytes()) for name, array in arrays.items()}
    context_map = repr(decoder.context_map), dict(decoder.context_map._seen)
    return {**state, **bits, "context_map": context_map, "repeats": decoder.repeats}


GOOD = episode(np.random.default_rng(9))
