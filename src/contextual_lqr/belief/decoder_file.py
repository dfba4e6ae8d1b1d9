"""A decoder as numbers that a file can hold, and the decoder of such numbers again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy import ndarray as Array

from contextual_lqr.belief.evidence.digests import Digests
from contextual_lqr.belief.evidence.logged import Logged
from contextual_lqr.belief.evidence.logged_runs import LoggedRuns
from contextual_lqr.belief.machines.changing_machines import ChangingMachines
from contextual_lqr.belief.machines.machine_store import MachineStore
from contextual_lqr.belief.prior import Prior
from contextual_lqr.belief.regression import Regression, listed, listed_level
from contextual_lqr.checks import require
from contextual_lqr.context import ContextMap, Dynamics, context_map_from
from contextual_lqr.errors import FormatError, OwnRuleError
from contextual_lqr.files import load_arrays, save_arrays

if TYPE_CHECKING:
    from contextual_lqr.belief.decoder import Decoder

FORMAT_VERSION = 2


class SavedDecoder:
    """The file of a `Decoder`."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a file, all of it or nothing: a crash leaves the old file or the new one.

        The context map is written too where it can be (constants and expressions); a map made of
        Python functions must be given again to `load`.

        Parameters
        ----------
        path : path
            The file, which is replaced if it exists.
        """
        save_arrays(path, "decoder", FORMAT_VERSION, *self.state())

    @classmethod
    def load(cls, path: str | os.PathLike[str], context_map: ContextMap | None = None) -> Decoder:
        """Read what `save` wrote, to the bit.

        Parameters
        ----------
        path : path
            The file.
        context_map : ContextMap, optional
            The map that it was learnt with; needed if that is made of Python functions.

        Returns
        -------
        Decoder
            The same belief.

        Raises
        ------
        FormatError
            If it is not such a file, is damaged, or has another version.
        """
        state, arrays = load_arrays(path, "decoder", FORMAT_VERSION)
        return cls.from_state(state, arrays, context_map, str(path))

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """All that the decoder is: what JSON can hold, and its arrays."""
        decoder = cast("Decoder", self)
        machines, regression = decoder._machines, decoder._regression
        store = None if machines is None else machines.store
        given = None if machines is None else machines.given
        state = {
            "context_map": decoder.context_map.describe(),
            "regularisation": decoder.regularisation,
            "noise_level": listed_level(decoder.given_noise_level),
            "episodes": decoder.episodes,
            "rows": decoder.rows,
            "ignored_rows": decoder.ignored_rows,
            "repeats": decoder.repeats,
            "sizes": None if regression is None else (regression.p, regression.d),
            "known": listed(decoder.known),
            "scales": listed_level(decoder.scales),
            "deviations": "estimated" if machines is not None and given is None else None,
            "machines": None if store is None else (store.states, store.width - store.states),
        }
        arrays = {"data": np.zeros((0, 0)) if regression is None else regression.data}
        arrays |= decoder._digests.arrays()
        if given is not None:
            arrays["deviations"] = given
        if decoder.given_prior is not None:
            arrays["prior"] = decoder.given_prior.theta
            arrays["prior_covariances"] = decoder.given_prior.covariances
        if decoder.logged is not None:
            arrays["logged"] = decoder.logged.array()
        arrays |= decoder.logged_runs.arrays()
        if store is not None:
            arrays |= store.arrays()
        if machines is not None and machines.changing is not None:
            arrays |= machines.changing.arrays()
        return state, arrays

    @classmethod
    def from_state(
        cls,
        state: Mapping[str, Any],
        arrays: Mapping[str, Array],
        given: ContextMap | None,
        name: str,
    ) -> Decoder:
        """The decoder of a `state`; `name` says in an error where it came from."""
        context_map = given
        try:
            if context_map is None and state["context_map"] is not None:
                context_map = context_map_from(state["context_map"])
            if context_map is not None:
                return _restored(cast("type[Decoder]", cls), state, arrays, context_map)
        except (KeyError, TypeError, ValueError) as error:
            what = "is damaged" if given is None else "does not fit the context_map given"
            raise FormatError(f"{name} {what}: {error}") from error
        raise OwnRuleError(
            f"{name} was learnt with a context map of Python functions, which cannot be written "
            "down: give the same one as context_map="
        )


def _restored(
    kind: type[Decoder],
    state: Mapping[str, Any],
    arrays: Mapping[str, Array],
    context_map: ContextMap,
) -> Decoder:
    decoder = kind(
        context_map,
        state["regularisation"],
        noise_level=state["noise_level"],
        known={int(i): row for i, row in state.get("known", {}).items()},
        deviations=arrays.get("deviations", state["deviations"]),
        prior=Prior(arrays["prior"], arrays["prior_covariances"]) if "prior" in arrays else None,
        scales=state.get("scales"),
    )
    decoder._digests = Digests.from_arrays(arrays)
    for name in ("episodes", "rows", "ignored_rows", "repeats"):
        count = state[name]
        require(type(count) is int and count >= 0, f"its {name} is {count!r}")
    decoder.episodes, decoder.repeats = state["episodes"], state["repeats"]
    if state["sizes"] is None:
        return decoder
    p, d = state["sizes"]
    data, shape = arrays["data"], context_map.shape
    require(type(p) is int and type(d) is int and p > 0 and d > 0, f"its sizes are {p}, {d}")
    require(shape is None or shape[:2] == (p, d), f"Θ is {(d, p)}, but the map's (p, d, m) {shape}")
    require(
        data.shape == (p + d, p + d) and data.dtype == np.float64 and np.isfinite(data).all(),
        f"its factor is not a finite ({p + d}, {p + d}) array of doubles",
    )
    require(not np.tril(data, -1).any(), "its factor is not triangular")
    decoder._regression = Regression(
        p, data, decoder.regularisation, decoder.known, state["rows"], state["ignored_rows"]
    )
    if "logged" in arrays:
        decoder.logged = Logged.from_array(arrays["logged"], p)
    decoder.logged_runs = LoggedRuns.from_arrays(arrays)
    if state["machines"] and decoder._machines is not None:
        states, more = state["machines"]
        decoder._machines.store = MachineStore.from_arrays(
            states, states + more, dict(arrays), not isinstance(context_map, Dynamics)
        )
        if "changing_factors" in arrays:
            changing = ChangingMachines.from_arrays(p, states, states + more, arrays)
            decoder._machines.changing = changing
    return decoder
