"""Decoder files: everything to the bit, the old file or the new one, refusals in words."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contextual_lqr import (
    BlockContext,
    ContextMap,
    Decoder,
    FeatureContext,
    FormatError,
    FunctionContext,
    InputError,
)
from contextual_lqr.belief.decoder_file import FORMAT_VERSION
from contextual_lqr.files import save_arrays
from episodes import GOOD, MAP, episode, learnt, snapshot


def own_G(context: Any) -> np.ndarray:
    return np.vstack((np.eye(3), context["gain"] * np.eye(3)))


def own_C(context: Any) -> np.ndarray:
    return np.eye(2) * (1 + context["gain"])


MAPS: dict[str, ContextMap] = {
    "constants": BlockContext(
        np.array([[0.1, 1 / 3], [1e-300, 7.0]]), [[0.5]], bounds={"gain": (0, 9)}
    ),
    "features": MAP,
    "unsized": FeatureContext({"one": "1", "twice": "2*gain"}),
    "function": FunctionContext(own_G),
    "a function as block": BlockContext(own_C, [[1.0]], bounds={"gain": (0, 9)}),
}


@pytest.mark.parametrize("taught", [0, 3])
@pytest.mark.parametrize("name", MAPS)
def test_a_file_holds_everything_to_the_bit(name: str, taught: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(10)
    decoder = Decoder(MAPS[name], 0.3, noise_level=0.02)
    for power in range(taught):
        decoder.update(*episode(rng, 1e8**power))
    file = tmp_path / "learnt.decoder"
    decoder.save(file)
    own = "function" in name
    if own:
        with pytest.raises(InputError, match=r"learnt.decoder.*Python functions.*context_map="):
            Decoder.load(file)
    loaded = Decoder.load(str(file), MAPS[name] if own else None)
    for known in (decoder, loaded) if decoder.rows else ():
        _ = known.estimate
    compared = ({**snapshot(d), "context_map": None} for d in (decoder, loaded))
    assert next(compared) == next(compared)
    if not own:
        assert loaded.context_map == decoder.context_map
    assert loaded.ignored_rows == (4 if taught else 0)
    for learner in (decoder, loaded):
        learner.update(*episode(np.random.default_rng(11)))
    assert loaded.estimate.tobytes() == decoder.estimate.tobytes()
    assert loaded.factor.tobytes() == decoder.factor.tobytes()
    assert loaded.system({"gain": 1.5}).A.tobytes() == decoder.system({"gain": 1.5}).A.tobytes()
    assert os.listdir(tmp_path) == ["learnt.decoder"]


@pytest.mark.parametrize("where", ["os.replace", "os.fsync", "os.open"])
def test_a_failed_write_leaves_the_old_file(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "learnt"
    learnt([GOOD]).save(file)
    old = file.read_bytes()

    def fail(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(where, fail)
        with pytest.raises(InputError, match=r"cannot write .*learnt: Permission denied"):
            learnt([GOOD] * 2).save(file)
    assert os.listdir(tmp_path) == ["learnt"]
    assert file.read_bytes() == old
    with pytest.raises(InputError, match=r"cannot write .*No such file"):
        learnt([GOOD]).save(tmp_path / "nowhere" / "learnt")
    with pytest.raises(InputError, match="cannot write"):
        learnt([GOOD]).save(tmp_path)
    assert os.listdir(tmp_path) == ["learnt"]
    learnt([GOOD, episode(np.random.default_rng(3))]).save(file)
    assert Decoder.load(file).episodes == 2


def test_a_damaged_file_is_refused_in_words(tmp_path: Path) -> None:
    file = tmp_path / "learnt"
    learnt([GOOD]).save(file)
    whole = file.read_bytes()
    rng = np.random.default_rng(12)
    noise = [rng.bytes(int(n)) for n in rng.integers(1, 2000, 60)]
    for content in [whole[:n] for n in range(0, len(whole), 5)] + noise + [whole + b"more"]:
        file.write_bytes(content)
        with pytest.raises(FormatError, match=r"learnt is (damaged|not a decoder file)"):
            Decoder.load(file)


STATE = {
    "context_map": MAP.describe(), "regularisation": 1.0, "noise_level": 1.0, "episodes": 1,
    "rows": 4, "ignored_rows": 0, "repeats": 0, "sizes": [6, 2], "deviations": None,
    "machines": None,
}  # fmt: skip
OTHER = BlockContext(np.eye(2), np.eye(1)).describe()
CHANGES = [
    {"rows": "many"}, {"rows": -1}, {"sizes": [6]}, {"sizes": [5, 2]}, {"sizes": [-1, 9]},
    {"sizes": ["6", "2"]}, {"regularisation": -1.0}, {"noise_level": "x"}, {"rows": 1.5},
    {"context_map": {"kind": "Other"}}, {"context_map": OTHER},
]  # fmt: skip
WRONG = {json.dumps(change): (STATE | change, np.eye(8)) for change in CHANGES} | {
    "nan": (STATE, np.full((8, 8), np.nan)),
    "float32": (STATE, np.eye(8, dtype=np.float32)),
    "not triangular": (STATE, np.ones((8, 8))),
}


@pytest.mark.parametrize(("state", "data"), WRONG.values(), ids=WRONG)
def test_a_file_that_contradicts_itself_is_refused(
    state: Any, data: np.ndarray, tmp_path: Path
) -> None:
    file = tmp_path / "learnt"
    none = np.zeros(0, np.uint64)
    save_arrays(file, "decoder", FORMAT_VERSION, STATE, {"data": np.eye(8), "digests": none})
    assert Decoder.load(file).rows == 4
    save_arrays(file, "decoder", FORMAT_VERSION, state, {"data": data, "digests": none})
    with pytest.raises(FormatError, match="learnt is damaged"):
        Decoder.load(file)


def test_other_files_are_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "learnt"
    save_arrays(file, "another", FORMAT_VERSION, {}, {"data": np.eye(2)})
    with pytest.raises(FormatError, match="learnt is not a decoder file"):
        Decoder.load(file)
    save_arrays(file, "decoder", FORMAT_VERSION + 1, {}, {"data": np.eye(2)})
    with pytest.raises(FormatError, match=r"has format version .*, but .* a newer one"):
        Decoder.load(file)
    with pytest.raises(InputError, match=r"there is no file .*nothing"):
        Decoder.load(tmp_path / "nothing")
    with pytest.raises(InputError, match="cannot read"):
        Decoder.load(tmp_path)
    learnt([GOOD]).save(file)
    with pytest.raises(InputError, match="context_map"):
        Decoder.load(file, BlockContext(np.eye(5), np.eye(2)))
