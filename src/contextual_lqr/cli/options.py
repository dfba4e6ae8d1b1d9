"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import cyclopts

AsJson = Annotated[bool, cyclopts.Parameter(name="--json", negative="")]
"""Print JSON, for a script to read."""
