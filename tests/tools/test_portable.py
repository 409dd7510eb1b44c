import sys

import pytest

import portable


def test_only_what_the_processor_can_do_is_run_and_a_failure_on_one_is_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[str] = []

    def run(name: str, words: list[str]) -> int:
        assert words == ["tests/theory"]
        ran.append(name)
        return int(name == "Zen")

    monkeypatch.setattr(portable, "run", run)
    monkeypatch.setattr(sys, "argv", ["portable.py", "tests/theory"])
    for here, failed in ((["Nehalem"], 0), (["Haswell", "Zen"], 1), ([], 0)):
        ran.clear()
        monkeypatch.setattr(portable, "runnable_here", lambda here=here: here)
        assert portable.main() == failed
        assert ran == here
