"""Work in a process of its own."""

import multiprocessing
import warnings
from typing import Any


def forked(work: Any, *arguments: Any) -> Any:
    """A process of its own that does so much and no more: it may be forked."""
    child = multiprocessing.get_context("fork").Process(target=work, args=arguments)
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        child.start()
    return child
