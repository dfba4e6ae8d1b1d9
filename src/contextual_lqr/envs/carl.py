"""CARL's environments behind our interface: a context of one's choice at every reset.

CARL (automl/CARL, `carl-bench`) already tells the context in its observation. What it lacks is
`reset(options={"context": ...})`: there a context is chosen from a fixed set. CARL 1.1.1 asks for
gymnasium < 1.0, and our extra `gym` for 1.0 or later, so that pip refuses the two together; CARL
1.1.0 has no such limit, and works with Gymnasium 1.
"""

from __future__ import annotations

from typing import Any


class FromCARL:
    """A CARL environment, whose `reset` takes `options={"context": {...}}` as ours do.

    Names that a context leaves out have CARL's defaults. Without a context CARL's own selector
    chooses. Everything else is the environment's.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self._selector = env.context_selector

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset to the context in `options`, if there is one."""
        context = (options or {}).get("context")
        if context is None:
            self.env.context_selector = self._selector
        else:
            whole = self.env.get_context_space().insert_defaults(dict(context))
            self.env.context_selector = type(self._selector)(contexts={0: whole})
        return self.env.reset(seed=seed)  # type: ignore[no-any-return]
