"""Low precision is tried in another process, and given up where it kills that."""

import logging

import pytest

from topicscope import precision
from topicscope.precision import usable_precision, works_on_processor


@pytest.mark.parametrize("survives", [True, False])
def test_a_dtype_that_ends_processes_is_given_up_with_a_sentence(
    survives: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    program = "pass" if survives else "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
    monkeypatch.setattr(precision, "TRIAL", program)
    works_on_processor.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert usable_precision("bfloat16", "cpu") == ("bfloat16" if survives else "float32")
    assert ("bfloat16 does not work on this processor" in caplog.text) is not survives
    works_on_processor.cache_clear()


def test_nothing_is_tried_where_nothing_can_go_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "TRIAL", "raise SystemExit(1)")
    works_on_processor.cache_clear()
    assert usable_precision("float32", "cpu") == "float32"
    assert usable_precision("float16", "cuda") == "float16"
    assert works_on_processor.cache_info().currsize == 0
