"""A learner that many machines share: a durable log of episodes, and the belief folded from it."""

from contextual_lqr.study.records import Asked, StudyStatus, Told
from contextual_lqr.study.study import Study

__all__ = ["Asked", "Study", "StudyStatus", "Told"]
