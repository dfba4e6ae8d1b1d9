"""What is wrong with logs, and what is in them, before anything is fitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from contextual_lqr.data.description import FleetDescription
from contextual_lqr.data.fitted_fleet import PathLike
from contextual_lqr.data.fitting import described, listed, with_history
from contextual_lqr.data.learning import Learning
from contextual_lqr.data.screening import LogReport
from contextual_lqr.data.sources import as_one_part, find_sources
from contextual_lqr.data.survey import LogSurvey, Surveyor


def survey_logs(
    description: FleetDescription | PathLike,
    logs: PathLike | Sequence[PathLike],
    *,
    sort: bool = False,
    progress: Callable[[float], None] | None = None,
) -> LogSurvey:
    """Read logs, report what is wrong, and say what is in them; options as in `fit`."""
    description, part = described(description), as_one_part(find_sources(listed(logs)))
    description, choice = with_history(description, [part], sort)
    surveyor, learning = Surveyor(description), Learning(description, sort=sort)
    told = None if progress is None else lambda _, share: progress(share)
    learnt, _ = learning.part(part, told, surveyor.look)
    learning.finish(learnt)
    learnt.report.require_rows()
    survey = surveyor.survey(learnt.report, learnt.decoder)
    if choice is not None:
        survey.report.history, survey.delay = choice, choice.sentences
        kept = f"the state is made of {choice.words}"
        survey.history = [kept, *(survey.history or [])]
    return survey


def check_logs(
    description: FleetDescription | PathLike,
    logs: PathLike | Sequence[PathLike],
    *,
    sort: bool = False,
    progress: Callable[[float], None] | None = None,
) -> LogReport:
    """Read logs, and report what is wrong with them; options as in `fit`."""
    return survey_logs(description, logs, sort=sort, progress=progress).report
