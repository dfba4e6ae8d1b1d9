"""Conformance suites for a strategy, a fleet, an environment or a store of your own.

Plain functions, which need no pytest: each raises an `AssertionError` that says in a sentence what
is wrong, and returns nothing if all is well.
"""

from contextual_lqr.testing.environments import check_environment
from contextual_lqr.testing.fleets import check_fleet
from contextual_lqr.testing.stores import check_store
from contextual_lqr.testing.strategies import check_strategy

__all__ = ["check_environment", "check_fleet", "check_store", "check_strategy"]
