"""Errors that a program reports in one line, without a traceback."""


class UserError(Exception):
    """The user asked for something that cannot be: says what, what was expected, what to do. Exit code 2."""


class RunError(Exception):
    """The run cannot go on, by no fault in the command given: a lost lease, a broker that stays away. Exit code 1."""


class Stopped(Exception):  # noqa: N818 - an order, not an error
    """The process was asked to stop while it waited."""
