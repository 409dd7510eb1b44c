"""What claims rest on: equal work is done once, kept under what it depends on, and found again."""

import operator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.helpers import small_settings
from support.small_paper import DONE, Numbers
from support.text_corpus import small_text_settings, write_corpus
from support.tiny_models import save_tiny, save_tokenizer
from topicscope.errors import UnreadableError
from topicscope.papers.needs import Experiment, Probing, computed, is_there, task
from topicscope.papers.topic_structure import language
from topicscope.probing import topics
from topicscope.probing.settings import CorpusSettings, MeasureSettings, ProbeSettings, TopicOptions
from topicscope.training import batches, record
from topicscope.work import map_tasks

SEEDS = (0, 1)


def test_equal_work_is_done_once_the_longest_first_and_found_under_either_name(tmp_path: Path) -> None:
    DONE.clear()
    one, same, other = Numbers("a/one", 1.0), Numbers("b/same", 1.0), Numbers("c/other", 2.0, cost=9.0)
    results = list(computed([one, other, same], SEEDS, tmp_path, workers=1))
    assert [[need.name for need in needs] for needs, _ in results] == [["c/other"], ["a/one", "b/same"]]
    assert results[1][1] == [1.0, 1.01]
    assert DONE == ["c/other", "a/one"]
    assert is_there(same, SEEDS, tmp_path)
    assert list(computed([same], SEEDS, tmp_path, workers=1)) == [([same], [1.0, 1.01])]
    assert DONE == ["c/other", "a/one"]
    assert not is_there(same, (5,), tmp_path)
    assert not is_there(replace(same, unavailable="Not here."), SEEDS, tmp_path)
    task(same, SEEDS, tmp_path).path(tmp_path).write_text("[1.0")
    with pytest.raises(UnreadableError, match=r"a-one-.*\.json cannot be read .*: remove it to have it done again"):
        list(computed([same], SEEDS, tmp_path, workers=1))


def test_a_key_has_what_a_training_depends_on_and_not_its_name() -> None:
    need = Experiment(name="a", settings=small_settings())
    assert need.key(SEEDS) == replace(need, name="b").key(SEEDS)
    changed: list[Experiment] = [
        replace(need, settings=small_settings(training={"steps": 13})),
        replace(need, gradients=True),
        replace(need, topic_words=((1.0, 0.0), (0.0, 1.0))),
        replace(need, most_seeds=1),
    ]
    assert all(other.key(SEEDS) != need.key(SEEDS) for other in changed)
    assert changed[-1].key((0, 5)) == changed[-1].key((0, 6))
    assert need.key((0,)) != need.key((1,))
    assert need.key(SEEDS)["version"] == Experiment.VERSION
    on_text = Experiment(name="a", settings=small_text_settings(), most_seeds=2)
    assert on_text.key((3, 4, 5))["seeds"] == [3, 4]
    assert replace(on_text, most_seeds=20).cost > on_text.cost


def test_a_training_has_a_seed_axis_and_common_held_out_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "HELD_OUT_DOCUMENTS", 40)
    for name, count in {"CHUNK": 20, "ATTENTION_DOCUMENTS": 10}.items():
        monkeypatch.setattr(record, name, count)
    need = Experiment(name="small", settings=small_settings(training={"loss": "squared"}), most_seeds=2)
    run = need.restore(need.compute((3, 8, 9), tmp_path))
    assert run.seeds == (3, 8)
    assert run.weights["value"].shape[0] == len(run.final["held_out_loss"]) == 2
    alone = need.restore(need.compute((8,), tmp_path))
    np.testing.assert_allclose(alone.final["held_out_loss"], run.final["held_out_loss"][1:], rtol=1e-6)
    assert alone.final["held_out_loss"] != pytest.approx(run.final["held_out_loss"][:1])


def test_training_on_text_measures_every_layer(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    corpus = write_corpus(tmp_path, articles=60)
    settings = small_text_settings(corpus, data={"vocabulary": 95}, training={"log_every": 5})
    need = Experiment(name="small", settings=settings, most_seeds=2)
    run = need.restore(need.compute((0, 1, 2), tmp_path / "scratch"))
    rows = (2, len(run.steps))
    assert np.isfinite(run.metrics["loss"]).all()
    # Attention starts nearly uniform.
    words = run.metrics["attention/words"]
    assert words.shape == (*rows, 2)
    assert ((words > 0) & (words < 0.05)).all()


def tiny_probing(folder: Path) -> Probing:
    """A small model on a small corpus of two topics."""
    save_tiny("bert", folder)
    words = [first + second + "x" for first in "abcd" for second in "efghi"]
    save_tokenizer(folder, words)
    draw, half = np.random.default_rng(0), len(words) // 2
    lines = [" ".join(draw.choice(words[:half] if line % 2 else words[half:], size=30)) for line in range(40)]
    (folder / "corpus.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = ProbeSettings(
        text=CorpusSettings(corpus=str(folder / "corpus.txt"), length=16, layout="lines"),
        topics=TopicOptions(topics=2, fractions=(0.1,), fits=1, iterations=20, stop_words="none"),
        measures=MeasureSettings(replicates=20, permutations=49, head_permutations=19),
    )
    return Probing(model=str(folder), settings=settings, group="trained")


def test_models_of_one_tokenizer_share_topics_and_a_probe_is_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tomotopy")
    fits: list[Any] = []
    fit = topics.fit_lda

    def counted(*given: Any, **named: Any) -> Any:
        fits.append(given)
        return fit(*given, **named)

    monkeypatch.setattr(topics, "fit_lda", counted)
    trained = tiny_probing(tmp_path / "model")
    untrained = replace(trained, model=f"random:{trained.model}", group="untrained")
    work = [task(need, (0,), tmp_path) for need in (trained, untrained)]
    contents = map_tasks(operator.call, work, tmp_path / "work", workers=1)
    assert len(fits) == 1
    first, second = (need.restore(content) for need, content in zip((trained, untrained), contents, strict=True))
    assert language.row_of(first, 0.1).topics == 2
    assert list(language.probed({"a": first, "b": second})) == [trained.model, untrained.model]
    assert language.row_of(first, 0.1).cosine != language.row_of(second, 0.1).cosine
    assert trained.key((0,)) != trained.key((1,))
    assert trained.key((0,)) != untrained.key((0,))
    assert not list((tmp_path / "work").glob("*.partial"))


def test_without_its_packages_a_probe_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topicscope.papers.needs.find_spec", lambda name: None if name == "tomotopy" else object())
    need = Probing(model="minilm", settings=ProbeSettings(), group="trained")
    assert need.unavailable == 'tomotopy is not installed: pip install "topicscope[language]".'
