"""``python -m topicscope`` is ``topicscope``."""

import sys

from topicscope.cli import main


def run() -> None:
    """Run the command line as a program, which ends with its exit code."""
    sys.exit(main())


if __name__ == "__main__":
    run()
