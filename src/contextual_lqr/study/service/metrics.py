"""What Prometheus scrapes: requests by route and answer, and how long they took."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping

_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Counts since the service began; threads may share it."""

    def __init__(self) -> None:
        self._lock, self._began = threading.Lock(), time.time()
        self._answers: Counter[tuple[str, str, int]] = Counter()
        self._within: Counter[tuple[str, float]] = Counter()
        self._times: dict[str, tuple[int, float]] = {}

    def count(self, method: str, route: str, code: int, seconds: float) -> None:
        """One request was answered."""
        with self._lock:
            self._answers[method, route, code] += 1
            number, total = self._times.get(route, (0, 0.0))
            self._times[route] = number + 1, total + seconds
            for bound in _BOUNDS:
                if seconds <= bound:
                    self._within[route, bound] += 1

    def text(self, gauges: Mapping[str, Mapping[str, float]]) -> str:
        """All of it in Prometheus' text format, with a gauge a study for each of `gauges`."""
        with self._lock:
            return "".join(f"{line}\n" for line in self._lines(gauges))

    def _lines(self, gauges: Mapping[str, Mapping[str, float]]) -> Iterable[str]:
        yield "# TYPE clqr_start_time_seconds gauge"
        yield f"clqr_start_time_seconds {self._began!r}"
        yield "# TYPE clqr_requests_total counter"
        for (method, route, code), number in sorted(self._answers.items()):
            labels = f'method="{method}",route="{route}",code="{code}"'
            yield f"clqr_requests_total{{{labels}}} {number}"
        yield "# TYPE clqr_request_seconds histogram"
        for route, (number, total) in sorted(self._times.items()):
            for bound in _BOUNDS:
                within = self._within[route, bound]
                yield f'clqr_request_seconds_bucket{{route="{route}",le="{bound}"}} {within}'
            yield f'clqr_request_seconds_bucket{{route="{route}",le="+Inf"}} {number}'
            yield f'clqr_request_seconds_sum{{route="{route}"}} {total!r}'
            yield f'clqr_request_seconds_count{{route="{route}"}} {number}'
        for name, values in gauges.items():
            yield f"# TYPE clqr_{name} gauge"
            for study, value in sorted(values.items()):
                yield f'clqr_{name}{{study="{study}"}} {value}'
