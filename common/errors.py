"""Errors that a program reports in one line, without a traceback."""


class UserError(Exception):
    """The user asked for something impossible: the text names that, what was expected, what to do. Exit code 2."""


class RunError(Exception):
    """The run cannot go on, by no fault in the command given: a lost lease, a broker that stays away. Exit code 1."""

    exit_code = 1


class DamagedError(RunError):
    """What Redis holds of the run, or what has arrived of it, cannot be read."""


class LeaseLostError(RunError):
    """Another process has taken this one's place."""


class PolicyLostError(RunError):
    """A policy that computed elsewhere is lost with what it had drawn; `reseed` begins anew with another one.

    A process that ends by it, with an exit code of its own, had better be started again.
    """

    exit_code = 3


class DivergedError(RunError):
    """Training has reached numbers that are not finite. The present weights are not worth a checkpoint."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} is not finite, so training has diverged: the last checkpoint is from before; try a smaller "
            "learning rate or --max-gradient-norm"
        )


class Stopped(Exception):  # noqa: N818 - an order, not an error
    """The process was asked to stop while it waited."""
