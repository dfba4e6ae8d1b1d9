"""Polars as `pl`, imported when it is first used: who reads no table need not have it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from contextual_lqr.errors import MissingExtraError

__all__ = ["pl"]

if TYPE_CHECKING:
    import polars as pl
else:

    class _Polars:
        def __getattr__(self, name: str) -> Any:
            try:
                return getattr(import_module("polars"), name)
            except ImportError as error:
                raise MissingExtraError("Polars", "cli") from error

    pl = _Polars()
