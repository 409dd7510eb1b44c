"""Where there is no terminal, progress is a line at once, and one per stage and minute."""

from types import SimpleNamespace

import pytest

from topicscope.commands.terminal import progress_bar


def test_a_line_is_written_at_once_for_each_stage_and_each_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 0.0, 9.0, 11.0, 12.0, 13.0, 80.0])
    monkeypatch.setattr("topicscope.commands.terminal.time", SimpleNamespace(monotonic=lambda: next(clock)))
    with progress_bar("probing", lines=True) as report:
        for done, state in enumerate(("loading", "reading", "piece 1", "piece 2", "figures", "figures")):
            report(done, 9, state)
    assert capsys.readouterr().err.splitlines() == [
        "topicscope: probing 0 of 9: loading (0 s)",
        "topicscope: probing 2 of 9: piece 1 (11 s)",
        "topicscope: probing 4 of 9: figures (13 s)",
        "topicscope: probing 5 of 9: figures (80 s)",
    ]
    # The control: quiet is quiet, and so are commands that do not ask for lines.
    for asked in ({"quiet": True, "lines": True}, {}):
        with progress_bar("probing", **asked) as report:
            report(0, 9, "piece 1")
    assert capsys.readouterr().err == ""
