"""Documents end to end: their text form, and choosing some of them."""

from pathlib import Path

import numpy as np
import pytest

from topicscope.errors import InputError
from topicscope.settings import Data
from topicscope.synthetic.documents import read_documents, write_documents
from topicscope.synthetic.topics import TopicModel, sample_documents


def test_documents_survive_the_text_form(tmp_path: Path) -> None:
    model = TopicModel.from_settings(Data(length=(1, 5)))
    documents = sample_documents(model, 20, generator=np.random.default_rng(9))
    write_documents(documents, tmp_path / "documents.txt")
    again = read_documents(tmp_path / "documents.txt", model.vocabulary)
    assert (again.tokens == documents.tokens).all()
    assert (again.lengths == documents.lengths).all()
    assert len((tmp_path / "documents.txt").read_text().splitlines()) == 20


@pytest.mark.parametrize("line", ["1 2 seven", "1 0 2", "1 101", "", "-3", "99999999999"])
def test_a_line_that_is_no_document_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "documents.txt"
    path.write_text(f"1 2\n{line}\n3\n")
    with pytest.raises(InputError, match="line 2"):
        read_documents(path, 101)


def test_selected_documents_are_the_chosen_ones_in_the_chosen_order() -> None:
    model = TopicModel.from_settings(Data(length=(1, 5)))
    documents = sample_documents(model, 6, generator=np.random.default_rng(10))
    parts = np.split(documents.tokens, documents.offsets[1:-1])
    chosen = documents.select(np.array([4, 0, 4]))
    assert chosen.tokens.tolist() == np.concatenate([parts[4], parts[0], parts[4]]).tolist()
    assert chosen.lengths.tolist() == [len(parts[4]), len(parts[0]), len(parts[4])]
