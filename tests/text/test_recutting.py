"""Passages are found again by the code that cut them, and cut anew by any other."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from topicscope.text.corpora import Corpus, open_corpus
from topicscope.text.tokens import PACKAGES, load_tokenizer, write_passages


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    (tmp_path / "text").write_text("the frog in the pond\nthe toad in the pond")
    return open_corpus(str(tmp_path / "text"))


@pytest.mark.parametrize("what", ["code_digest", "package_versions"])
def test_passages_cut_by_other_code_are_cut_anew(
    what: str, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    tokenizer, folder = load_tokenizer("minilm"), tmp_path / "passages"
    first = write_passages(corpus, tokenizer, length=4, folder=folder)
    reading = Corpus.documents
    read: list[str] = []

    def noted(self: Corpus, *progress: object) -> Iterator[object]:
        read.append(self.source)
        return reading(self, *progress)  # type: ignore[arg-type]

    monkeypatch.setattr(Corpus, "documents", noted)
    # The control: the same code finds them.
    write_passages(corpus, tokenizer, length=4, folder=folder)
    assert read == []
    other = {"code_digest": "of other code", "package_versions": dict.fromkeys(PACKAGES, "0")}[what]
    monkeypatch.setattr(f"topicscope.text.tokens.{what}", lambda names: other)
    again = write_passages(corpus, tokenizer, length=4, folder=folder)
    assert read == [corpus.source]
    # What was not changed by it is known by its content.
    assert again.digest == first.digest
    write_passages(corpus, tokenizer, length=4, folder=folder)
    assert read == [corpus.source]
