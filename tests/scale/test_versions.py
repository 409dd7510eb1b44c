import os
import sys
from pathlib import Path

import pytest

from topicscope.scale import available_cores, code_digest, versions


def test_a_digest_of_the_code_changes_with_what_it_is_of_and_with_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[code_digest.__module__], "ROOT", tmp_path)
    (tmp_path / "theory").mkdir()
    digests = []
    for formula, page in (("a = 1", "b = 1"), ("a = 1", "b = 2"), ("a = 2", "b = 1")):
        (tmp_path / "theory" / "formula.py").write_text(formula)
        (tmp_path / "page.py").write_text(page)
        digests.append((code_digest.__wrapped__(("theory",)), code_digest.__wrapped__((".",))))
    (first, whole), (other_page, other_whole), (other_formula, _) = digests
    assert first == other_page != other_formula
    assert whole != other_whole


def test_versions_name_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules[versions.__module__]
    monkeypatch.setattr(module, "PACKAGES", ("numpy", "no-such-package"))
    found = versions.__wrapped__()
    assert found["no-such-package"] == "not installed"
    assert found["numpy"] != "not installed"
    assert found["topicscope"] == code_digest((".",))


def test_cores_are_those_of_this_process_or_all_where_the_system_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 3, 5}, raising=False)
    assert available_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert available_cores() == 7
