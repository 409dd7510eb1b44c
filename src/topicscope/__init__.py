"""topicscope: how transformers learn topic structure, checked against theory."""

__version__ = "0.1.0"
