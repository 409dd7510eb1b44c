"""From a corpus to passages: read as the probe reads it, with progress in bytes."""

from pathlib import Path

import pytest

from support.text_corpus import write_corpus
from topicscope.settings.text import TextData
from topicscope.text.corpora import Corpus, open_corpus
from topicscope.training import text
from topicscope.training.text import prepare_text

pytest.importorskip("tokenizers")
pytest.importorskip("transformers")


@pytest.mark.parametrize("kept", [True, False])
def test_progress_counts_every_reading_of_the_corpus_in_bytes(
    kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_corpus(tmp_path)
    size, seen = path.stat().st_size, list[tuple[int, int, str]]()
    monkeypatch.setattr(text, "KEPT_BYTES", size if kept else size - 1)
    data = TextData(corpus=str(path), vocabulary=80, length=12)
    prepare_text(data, tmp_path / "run", report=lambda *told: seen.append(told))
    learnt, cut = (size, size, "bytes read for the tokenizer"), (size, size, "bytes read")
    # The tokenizer is trained in two readings, and passages are cut in a third; what is kept is read once.
    assert seen == ([learnt] if kept else [learnt, learnt, cut])
    seen.clear()
    prepare_text(data, tmp_path / "run", report=lambda *told: seen.append(told))
    assert not seen


def test_a_corpus_is_opened_as_the_settings_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, told = write_corpus(tmp_path), dict[str, str]()

    def opened(source: str, **how: str) -> Corpus:
        told.update(how)
        return open_corpus(source, **how)

    monkeypatch.setattr(text, "open_corpus", opened)
    data = TextData(corpus=str(path), vocabulary=80, length=12)
    lines = prepare_text(data, tmp_path / "lines")
    assert told == {"field": "text", "split": "train", "layout": "auto"}
    assert lines.passages.articles.max() == 39
    other = TextData(corpus=str(path), vocabulary=80, length=12, split="test", layout="files", field="body")
    assert prepare_text(other, tmp_path / "whole").passages.articles.max() == 0
    assert told == {"field": "body", "split": "test", "layout": "files"}
