"""One function per sub-command: the Python API, free of parsing and printing."""
