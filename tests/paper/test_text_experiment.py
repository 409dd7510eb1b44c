"""Experiments on text that have their text in common."""

import dataclasses
import operator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.text_corpus import small_text_settings, write_corpus
from topicscope.paper.claim import need_item
from topicscope.paper.experiment import TextExperiment
from topicscope.scale import map_items
from topicscope.text.corpora import Corpus
from topicscope.training import text


def test_experiments_that_differ_in_training_alone_prepare_their_text_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tokenizers")
    made, read = [], []
    make, documents = text._make_tokenizer, Corpus.documents

    def noted(*arguments: Any) -> None:
        made.append(arguments)
        make(*arguments)

    def noted_reading(corpus: Any, progress: Any = None) -> Any:
        read.append(corpus)
        return documents(corpus, progress)

    monkeypatch.setattr(text, "_make_tokenizer", noted)
    monkeypatch.setattr(Corpus, "documents", noted_reading)
    settings = small_text_settings(write_corpus(tmp_path), training={"measures": 0})
    faster = dataclasses.replace(settings, training=dataclasses.replace(settings.training, learning_rate=0.01))
    smaller = dataclasses.replace(settings, data=dataclasses.replace(settings.data, vocabulary=60))
    experiments = [
        TextExperiment(name=name, settings=each, seeds=1)
        for name, each in (("first", settings), ("faster", faster), ("smaller", smaller))
    ]
    items = [need_item(experiment, (0,)) for experiment in experiments]
    contents = map_items(operator.call, items[:2], folder=tmp_path / "work")
    assert (len(made), len(read)) == (1, 1)
    # The control: another vocabulary needs another tokenizer.
    map_items(operator.call, items[2:], folder=tmp_path / "work")
    assert (len(made), len(read)) == (2, 2)
    # Text that was found is as good as text that was made.
    alone = experiments[1].restore(experiments[1].compute((0,)))
    np.testing.assert_array_equal(experiments[1].restore(contents[1]).loss, alone.loss)
    assert (alone.loss != experiments[0].restore(contents[0]).loss).any()
