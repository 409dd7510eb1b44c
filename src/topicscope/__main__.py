"""``python -m topicscope`` is ``topicscope``."""

import sys

from topicscope.cli import main as run

if __name__ == "__main__":
    sys.exit(run())
