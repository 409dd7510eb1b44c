"""What a user can get wrong, and what training can: each is one sentence and an exit code."""


class InputError(Exception):
    """Something given is wrong: the message says what, what is allowed and what to do."""

    exit_code = 2


class DivergedError(Exception):
    """Training reached a loss that is not a finite number."""

    exit_code = 3


class StoppedTraining(KeyboardInterrupt):
    """Ctrl-C, after the run was saved: the message says how to go on."""


class LostWorkError(Exception):
    """A piece of work could not be finished: its worker was lost again and again."""

    exit_code = 4
