"""Files of arrays: written whole or not at all, and refused in words when they cannot be read."""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.errors import FormatError, InputError


def atomic_write(path: str | os.PathLike[str], content: bytes) -> None:
    """Write beside the file and then rename: whatever happens, the old file or the new one."""
    target = Path(path)
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with beside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror}") from error
    finally:
        beside.unlink(missing_ok=True)


def save_arrays(
    path: str | os.PathLike[str],
    kind: str,
    version: int,
    state: Mapping[str, Any],
    arrays: Mapping[str, Array],
) -> None:
    """Write arrays and a JSON-able state, with the kind of file and the version of its format."""
    from safetensors.numpy import save

    header = {"format": f"contextual-lqr {kind}", "version": str(version)}
    content = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    atomic_write(path, save(content, metadata=header | {"state": json.dumps(state)}))


def load_arrays(
    path: str | os.PathLike[str], kind: str, version: int
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read what `save_arrays` wrote, to the bit."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            ours = header.get("format") == f"contextual-lqr {kind}"
            names = file.keys() if ours else ()
            arrays = {name: np.array(file.get_tensor(name)) for name in names}
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except SafetensorError as error:
        raise FormatError(f"{path} is damaged or no {kind} file: {error}") from None
    if not ours:
        raise FormatError(f"{path} is not a {kind} file")
    if header.get("version") != str(version):
        raise FormatError(
            f"{path} has format version {header.get('version')}, but this release reads version "
            f"{version}: read it with the release, probably a newer one, that wrote it"
        )
    try:
        state = json.loads(header["state"])
    except (KeyError, ValueError) as error:
        raise FormatError(f"{path} is damaged: {error}") from None
    if not isinstance(state, dict):
        raise FormatError(f"{path} is damaged: its state is no mapping")
    return state, arrays


def finite(value: Any) -> Any:
    """What strict JSON can hold: a number that is not finite becomes None."""
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
