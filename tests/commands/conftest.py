"""A small probe that is there already.

What they need of torch is imported where it is used: some commands load none.
"""

import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus of three topics and two models that share a tokenizer."""
    from support.small_probe import write_tiny

    folder = tmp_path_factory.mktemp("tiny")
    write_tiny(folder)
    return folder


@pytest.fixture(scope="session")
def probed(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a probe of three models: to be copied, not written to."""
    from support.small_probe import run

    out = tmp_path_factory.mktemp("out") / "probe"
    with pytest.MonkeyPatch.context() as patch:
        # Small shards, so that there are several.
        patch.setattr("topicscope.probing.study.PASSAGES", 16)
        assert run(tiny, out, str(tiny / "bert"), f"random:{tiny / 'bert'}", str(tiny / "gpt2"), "--json") == 0
    return out


@pytest.fixture(scope="module")
def finished(probed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A module's own copy of it."""
    return shutil.copytree(probed, tmp_path_factory.mktemp("finished") / "probe")


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take most of the time of a small probe: they are drawn where they are looked at."""
    monkeypatch.setattr("topicscope.reporting.figures.probe.draw", lambda *_: [])
