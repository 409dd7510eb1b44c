"""Topic models of other libraries give words with topics, as the probe reads them."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import topicscope as ts
from topicscope.errors import InputError
from topicscope.probing.topics import read_pairs

GROUPS = [["frog", "toad", "newt"], ["flute", "cello", "organ"]]
DOCUMENTS = [
    [str(word) for word in np.random.default_rng(seed).choice(GROUPS[seed % 2], size=20)] for seed in range(60)
]


def of_gensim() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from gensim.corpora import Dictionary
        from gensim.models import LdaModel
    dictionary = Dictionary(DOCUMENTS)
    bags = [dictionary.doc2bow(document) for document in DOCUMENTS]
    return LdaModel(bags, num_topics=2, id2word=dictionary, passes=5, random_state=0)


def of_tomotopy() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tomotopy
    model = tomotopy.LDAModel(k=2, seed=1)
    for document in DOCUMENTS:
        model.add_doc(document)
    model.train(50, workers=1)
    return model


def of_scikit_learn() -> Any:
    text = pytest.importorskip("sklearn.feature_extraction.text")
    nmf = pytest.importorskip("sklearn.decomposition").NMF(2, random_state=0)
    pipeline = pytest.importorskip("sklearn.pipeline").make_pipeline(text.CountVectorizer(), nmf)
    return pipeline.fit([" ".join(document) for document in DOCUMENTS])


class BERTopicStandIn:
    """What BERTopic documents: ``get_topics`` gives words with scores by topic, and −1 is that of outliers."""

    def get_topics(self) -> dict[int, list[tuple[str, float]]]:
        named = {topic: [(word, 0.1) for word in words] for topic, words in enumerate(GROUPS)}
        return {-1: [("the", 0.01)], **named, 2: [("", 1e-05)]}


@pytest.mark.parametrize("make", [of_gensim, of_tomotopy, of_scikit_learn, BERTopicStandIn])
def test_models_of_every_library_give_their_topics_words(make: Any, tmp_path: Path) -> None:
    pytest.importorskip({of_gensim: "gensim", of_tomotopy: "tomotopy", of_scikit_learn: "sklearn"}.get(make, "csv"))
    model = make()
    found = ts.word_topics(model, words=3, out=tmp_path / "own.csv")
    assert sorted(map(sorted, found.values())) == sorted(map(sorted, GROUPS))
    # The file is what --word-topics reads.
    assert read_pairs(tmp_path / "own.csv") == [(word, topic) for topic, words in found.items() for word in words]
    # The control: fewer words are the first of more.
    assert all(len(words) == 1 for words in ts.word_topics(model, words=1).values())


def test_columns_without_names_and_other_things_are_refused() -> None:
    class Columns:
        components_ = np.array([[0.5, 0.5, 0.0], [0.0, 0.1, 0.9]])

    assert ts.word_topics(Columns(), words=2, names=["a", "b", "c"]) == {"0": ["a", "b"], "1": ["c", "b"]}
    for names, message in ((None, "no names are given"), (["a"], "1 names are given")):
        with pytest.raises(InputError, match=message):
            ts.word_topics(Columns(), names=names)
    with pytest.raises(InputError, match="A dict is no topic model that is known"):
        ts.word_topics({})
    with pytest.raises(InputError, match="words = 0"):
        ts.word_topics(Columns(), words=0, names=["a", "b", "c"])
