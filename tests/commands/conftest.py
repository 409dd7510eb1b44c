import pytest

from support.small_registry import SMALL
from topicscope.commands import reproduce as command
from topicscope.paper import experiment
from topicscope.paper.claim import Need, Seeds, compute_need


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A small registry, and the names of the experiments that were trained."""
    trained: list[str] = []

    def recorded(run: tuple[Need, Seeds]) -> bytes:
        trained.append(run[0].name)
        return compute_need(run)

    monkeypatch.setattr(command, "registry", lambda preset: SMALL)
    monkeypatch.setattr(command, "compute_need", recorded)
    for name, count in (
        ("HELD_OUT_DOCUMENTS", 40),
        ("CHUNK", 20),
        ("GRADIENT_DOCUMENTS", 20),
        ("ATTENTION_DOCUMENTS", 10),
    ):
        monkeypatch.setattr(experiment, name, count)
    return trained
