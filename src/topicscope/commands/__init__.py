"""One function a sub-command: the Python API, free of parsing and printing."""
