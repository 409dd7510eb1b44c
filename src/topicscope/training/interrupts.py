"""Ctrl-C while training: the step that is being computed is finished and saved, then the run stops."""

import shlex
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from topicscope.errors import StoppedTraining

# Asked between steps: whether to save and stop.
Stop = Callable[[], bool]


def never() -> bool:
    """For work whose stopping is somebody else's: a kill loses what was done since the last checkpoint."""
    return False


@contextmanager
def stop_on_interrupt() -> Iterator[Stop]:
    """Whether Ctrl-C was pressed, as a function to ask between steps; pressed twice, it stops at once.

    An interrupt in the middle of a step would leave some weights updated and others not. Only where Ctrl-C means what
    it usually does: in the main thread, with Python's own handler.
    """
    pressed = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    main = threading.current_thread() is threading.main_thread()
    usual = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if usual:
        signal.signal(signal.SIGINT, note)
    try:
        yield lambda: pressed
    finally:
        if usual:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def stopped(step: int, out: Path) -> StoppedTraining:
    """What is said of a run that was stopped and saved."""
    again = f"topicscope train --out {shlex.quote(str(out))} --resume"
    return StoppedTraining(f"stopped at step {step}, which is saved: {again} goes on from there.")
