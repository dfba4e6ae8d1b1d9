"""A learner that many machines share: a durable log of episodes, and the belief folded from it."""

from contextual_lqr.study.study import Asked, Study, StudyStatus, Told

__all__ = ["Asked", "Study", "StudyStatus", "Told"]
