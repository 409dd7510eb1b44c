"""``python -m topicscope`` is ``topicscope``."""

import sys

from topicscope.cli import main


def run() -> None:
    """The command line as a program: ends with its exit code."""
    sys.exit(main())


if __name__ == "__main__":
    run()
