"""What can go wrong, in words: one base error and a few leaves.

Every message says what was wrong, where, and what would be right.
"""


class ContextualLQRError(Exception):
    """Base of everything this library raises on purpose."""


class InputError(ContextualLQRError, ValueError):
    """An argument cannot be used; the call changed nothing."""


class ContextError(InputError):
    """A context has an unknown, missing, non-finite or out-of-bounds value."""


class FormatError(InputError):
    """A file or description is truncated, damaged, or in a format that we do not read."""


class OwnRuleError(InputError):
    """A file was saved with a Python function or class of the user's, which must be given again."""


class UnsolvableError(ContextualLQRError, ArithmeticError):
    """A control problem has no finite minimiser; the message names the member and the step."""


class MissingExtraError(ContextualLQRError, ImportError):
    """A package that only an extra installs is needed, and is not there."""

    def __init__(self, package: str, extra: str) -> None:
        remedy = f"pip install 'contextual-lqr[{extra}]'"
        super().__init__(f"{package} is not installed, and this needs it: {remedy}")
