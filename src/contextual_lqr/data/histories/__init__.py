"""Histories of outputs as states: how long they must be, how late inputs act, their steps."""
