"""Files are written whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from contextual_lqr.errors import InputError


def write_whole(path: str | os.PathLike[str], content: bytes) -> None:
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
