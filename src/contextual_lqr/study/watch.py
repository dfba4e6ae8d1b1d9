"""What a study shows to those who watch it, as what JSON can hold.

Ten watchers cost what one costs: an answer is made once, and anew only when the study has grown. A
study that grows all the time is not recomputed all the time: an answer that took t to make stands
for at least 10 t, so that each takes less than a tenth of one core. Every answer says of how many
episodes it is.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from contextual_lqr.study import schema, shown_belief, shown_log
from contextual_lqr.study.encoding import context_of, context_text
from contextual_lqr.study.schema import sql
from contextual_lqr.study.shown_belief import Names, NotYet, Seen
from contextual_lqr.study.shown_log import Run
from contextual_lqr.study.study import Study

Answer = dict[str, Any]

LATEST = 1000  # runs whose costs are shown
_SHARE = 10.0  # times what an answer took to make, for which it stands
_SECOND = 1.0  # for which at least it stands who is out
_KEPT = 64  # answers, of maps and of machines that somebody looked at


@dataclass(eq=False)
class _Made:
    """An answer, when it was finished, and how long that took."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    answer: Answer | None = None
    finished: float = -math.inf
    took: float = 0.0

    def keep(self, make: Callable[[], Answer]) -> None:
        """Make it anew."""
        began = time.monotonic()
        self.answer = make()
        self.finished = time.monotonic()
        self.took = self.finished - began


class Watch:
    """The answers of one study; threads may share it."""

    def __init__(self, study: Study, clock: Callable[[], float] = time.time) -> None:
        self.study, self._clock = study, clock
        self._lock = threading.Lock()
        self._made: OrderedDict[tuple[Any, ...], _Made] = OrderedDict()
        self._runs: deque[Run] = deque(maxlen=LATEST)
        self._seen: Seen | None = None
        agent = study._learner.agent
        sizes = (agent.cost.state_size, agent.cost.input_size)
        self.names = Names.of(study._log.description, *sizes, agent.decoder.context_map.names)

    # -- the log -----------------------------------------------------------------------------------

    def mark(self) -> Answer:
        """What changes whenever an episode or an ask has come."""
        asks = schema.asks.c
        latest = sql.select(sql.func.count(), sql.func.max(asks.asked_at))
        with self.study._log.database.reading() as now:
            out, at = now.execute(latest.where(asks.told.is_(None))).one()
        return {"episodes": self.study._log.count(), "out": int(out), "asked_at": at}

    def overview(self) -> Answer:
        """How it stands, and every machine's state; of one second at most."""
        with self._kept(("overview",)) as made:
            if time.monotonic() - made.finished >= max(_SECOND, _SHARE * made.took):
                made.keep(self._overview)
            assert made.answer is not None
            return made.answer

    def _overview(self) -> Answer:
        log, now = self.study._log, self._clock()
        told, asks, runs = log.machines(), log.open_asks(), self.runs()
        late = sum(one.expires_at < now for one in asks)
        labels = {*(one.machine for one in told), *(one.machine or "" for one in asks)}
        episodes = sum(one.episodes for one in told)
        return {
            "episodes": episodes,
            "out": len(asks),
            "late": late,
            "count": len(labels),
            "machines": shown_log.machines(told, asks, runs, now),
            "units": self.names.contexts,
            "sentence": shown_log.in_words(episodes, labels, len(asks), late),
            "now": now,
        }

    def costs(self) -> Answer:
        """Cost and excess of the latest episodes."""
        return self._answer(
            ("costs",), lambda seen: shown_log.costs(self.runs(), seen.decoder, seen.cost)
        )

    def runs(self) -> list[Run]:
        """The latest episodes, in order."""
        log = self.study._log
        with self._lock:
            last = self._runs[-1].number if self._runs else 0
            last = max(last, log.count() - LATEST)
            while some := log.after(last, LATEST):
                self._runs.extend(Run.of(one) for one in some)
                last = some[-1].number
            return list(self._runs)

    # -- the belief --------------------------------------------------------------------------------

    def theta(self) -> Answer:
        """Θ with its standard errors, and what is still dark."""
        return self._answer(("theta",), shown_belief.theta)

    def trust(self) -> Answer:
        """How many machines never tried would be trusted."""
        return self._answer(("trust",), shown_belief.trust)

    def alarm(self) -> Answer:
        """Machines that stand out."""
        return self._answer(("alarm",), shown_belief.alarm)

    def next_runs(self) -> Answer:
        """What to run next."""
        return self._answer(("next",), shown_belief.next_runs)

    def map(
        self, x: str | None = None, y: str | None = None, held: Mapping[str, Any] | None = None
    ) -> Answer:
        """Verdicts over a range of contexts."""
        key = ("map", x, y, context_text(held or {}))
        return self._answer(key, lambda seen: shown_belief.trust_map(seen, x, y, held))

    def look(self, context: Any, machine: str | None = None) -> Answer:
        """One machine in detail."""
        key = ("look", context_text(context), machine)
        return self._answer(key, lambda seen: shown_belief.look(seen, context, machine))

    def seen(self) -> Seen:
        """What is believed now; the same for all, with whatever it remembers to have computed."""
        study = self.study
        if self._seen is not None and self._seen.episodes == study._log.count():
            return self._seen
        with study._lock:
            decoder, agent = study.decoder, study._learner.agent
            episodes = study._learner.number
        machines = {one.machine: context_of(one.context) for one in study._log.machines()}
        task = (agent.cost, agent.start, agent.input_bounds)
        self._seen = Seen(episodes, decoder, *task, self.names, machines)
        return self._seen

    # -- inside ------------------------------------------------------------------------------------

    @contextmanager
    def _kept(self, key: tuple[Any, ...]) -> Iterator[_Made]:
        """The answer to this; who asks for the same meanwhile waits for the one answer."""
        with self._lock:
            made = self._made.setdefault(key, _Made())
            self._made.move_to_end(key)
            if len(self._made) > _KEPT:
                self._made.popitem(last=False)
        with made.lock:
            yield made

    def _answer(self, key: tuple[Any, ...], make: Callable[[Seen], Answer]) -> Answer:
        with self._kept(key) as made:
            young = time.monotonic() - made.finished < _SHARE * made.took
            if made.answer is None or not (young or self._is_of_now(made)):
                made.keep(lambda: self._made_now(make))
            assert made.answer is not None
            return made.answer

    def _is_of_now(self, made: _Made) -> bool:
        assert made.answer is not None
        return bool(made.answer["episodes"] == self.study._log.count())

    def _made_now(self, make: Callable[[Seen], Answer]) -> Answer:
        seen = self.seen()
        try:
            found = make(seen)
        except NotYet as error:
            found = {"missing": str(error)}
        return {"episodes": seen.episodes, **found}
