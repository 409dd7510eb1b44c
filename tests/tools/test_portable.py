import sys

import pytest

import portable

COVERED = {
    "OPENBLAS_CORETYPE": {"Nehalem", "Haswell", "SkylakeX", "Zen"},
    "ATEN_CPU_CAPABILITY": {"default", "avx2", "avx512"},
    "MKL_ENABLE_INSTRUCTIONS": {"SSE4_2", "AVX2", "AVX512"},
}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the processors that the tests were run as; no test is run."""
    names: list[str] = []

    def run(processor: portable.Processor, words: list[str]) -> int:
        assert words == ["tests/theory"]
        names.append(processor.name)
        return int(processor.name == "Zen")

    monkeypatch.setattr(portable, "run", run)
    return names


def chosen(monkeypatch: pytest.MonkeyPatch, flags: frozenset[str], *words: str) -> int:
    monkeypatch.setattr(portable, "instructions", lambda: flags)
    monkeypatch.setattr(sys, "argv", ["portable.py", *words, "tests/theory"])
    return portable.main()


def test_every_value_is_covered_by_some_processor() -> None:
    for variable, values in COVERED.items():
        assert {each.environment[variable] for each in portable.PROCESSORS if variable in each.environment} == values


def test_only_what_the_processor_can_do_is_run(monkeypatch: pytest.MonkeyPatch, ran: list[str]) -> None:
    assert chosen(monkeypatch, frozenset({"sse4_2"})) == 0
    assert ran == ["Nehalem"]
    # A failure on one processor is a failure.
    assert chosen(monkeypatch, portable.AVX2 | {"sse4_2"}) == 1
    assert ran[1:] == ["Nehalem", "Haswell", "Zen"]
    assert chosen(monkeypatch, frozenset()) == 0
    assert len(ran) == 4
