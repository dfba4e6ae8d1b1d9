"""Where a feature has no value there is no path, and it is said which feature, and where."""

import numpy as np
import pytest

import contextual_lqr as clqr
from contextual_lqr.certificates.paths.path_certificate import predict_path

TANK = clqr.FeatureDynamics(["h", "pump/area", "sqrt(h)/area"], states=["h"], inputs=["pump"])
DRY = clqr.TargetCost([[[1.0]]] * 31, [[[0.1]]] * 30, target=[1e-4])


@pytest.fixture(scope="module")
def decoder() -> clqr.Decoder:
    rng, found = np.random.default_rng(0), clqr.Decoder(TANK)
    for i in range(4):
        area = float(rng.uniform(0.5, 2))
        x, u = [np.array([1.0])], rng.uniform(0, 2, (40, 1))
        for pump in u:
            x.append(x[-1] + 0.1 * (pump - np.sqrt(x[-1])) / area + 1e-3 * rng.standard_normal(1))
        found.update({"area": area}, clqr.Trajectory(x, u), machine=f"tank {i}")
    return found


def test_a_start_without_features_is_refused_as_predict_does(decoder: clqr.Decoder) -> None:
    said = r"the feature 'sqrt\(h\)/area' is nan at area=1.0, h=-1.0"
    with pytest.raises(clqr.ContextError, match=said):
        clqr.certify(decoder, {"area": 1.0}, DRY, [-1.0])
    with pytest.raises(clqr.ContextError, match=said):
        predict_path(decoder, {"area": 1.0}, DRY, [-1.0], np.random.default_rng(0))


def test_of_many_contexts_the_one_without_features_is_named(decoder: clqr.Decoder) -> None:
    near = clqr.TargetCost([[[1.0]]] * 3, [[[0.1]]] * 2, target=[1.0])
    with pytest.raises(clqr.ContextError, match="context 1: the feature 'pump/area' is nan"):
        clqr.certify_many(decoder, {"area": [1.0, 0.0, 2.0]}, near, [1.0], draws=4)


def test_a_way_without_features_is_not_for_use(decoder: clqr.Decoder) -> None:
    found = clqr.certify(decoder, {"area": 0.5}, DRY, [0.05], draws=8)
    assert found.verdict == "do not use"
    assert "no path was found: on the way of the first guess, the feature 'sqrt" in found.reason
    assert found.likely_excess == np.inf
    assert found.as_dict()["predicted_cost"] is None
    with pytest.raises(clqr.UnsolvableError, match="no path was found"):
        predict_path(decoder, {"area": 0.5}, DRY, [0.05], np.random.default_rng(0))
