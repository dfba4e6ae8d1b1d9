"""Conformance suites that a strategy, a fleet or an environment of your own can be held to."""
