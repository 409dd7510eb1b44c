"""The command line: parsing and printing only; each sub-command has a module here and one in ``commands``."""

from topicscope.cli.main import main

__all__ = ["main"]
