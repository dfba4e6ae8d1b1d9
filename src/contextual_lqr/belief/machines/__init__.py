"""Machines kept apart: what each has shown, and how far they deviate from the law."""
