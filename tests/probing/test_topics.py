"""Bags, LDA, labellings, own topics, and the quality of topics."""

import math
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

import topicscope as ts
from support.planted import planted_bags, planted_passages, word_tokenizer
from topicscope.errors import InputError
from topicscope.probing.settings import TopicOptions
from topicscope.probing.topics import (
    Bags,
    FittedTopics,
    Fitting,
    collect_bags,
    diversity,
    fit_lda,
    fit_topics,
    fitting_fractions,
    fitting_topics,
    label_fits,
    label_words,
    load_topics,
    quality,
    read_own_topics,
    read_pairs,
    sample,
    save_topics,
    stability,
    top_words,
    words_per_topic,
)
from topicscope.records import TopicFit
from topicscope.text.stop_words import stop_word_list
from topicscope.text.tokenizers import Tokenizer
from topicscope.text.tokens import Passages
from topicscope.text.words import Words

# Topics and iterations.
PLANTED = (4, 60)
ONCE = TopicOptions(topics=4, iterations=1)


def fabricated(topic_word: np.ndarray, tokens: np.ndarray | None = None) -> FittedTopics:
    words = topic_word.shape[1]
    tokens = np.arange(words, dtype=np.int32) * 2 if tokens is None else tokens
    return FittedTopics(tokens, topic_word.astype(np.float32), TopicFit(seed=3))


def recovered(fitted: FittedTopics, words: int) -> float:
    """Share of the planted topics whose words are the likeliest ones of a fitted topic."""
    found = {frozenset(np.argsort(-row)[:words].tolist()) for row in fitted.topic_word}
    topics = fitted.topic_word.shape[1] // words
    return mean([frozenset(range(t * words, (t + 1) * words)) in found for t in range(topics)])


def test_words_a_topic_are_the_papers_for_29000_to_29499_words_and_no_others() -> None:
    def pairs(vocabulary: int) -> list[int]:
        return [math.comb(words_per_topic(fraction, vocabulary), 2) for fraction in (0.0005, 0.001, 0.002)]

    # The fraction as it is written: 0.29 · 100 is stored as a little less than 29.
    assert words_per_topic(0.29, 100) == 30
    assert [v for v in range(28_000, 31_000) if pairs(v) == [105, 435, 1711]] == list(range(29_000, 29_500))


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.floats(0.1, 0.6))
def test_labels_equal_a_loop_over_words_and_topics(seed: int, fraction: float) -> None:
    topic_word = np.random.default_rng(seed).dirichlet(np.full(12, 0.5), size=3).astype(np.float32)
    fitted = fabricated(topic_word)
    count = words_per_topic(fraction, 12)
    expected: dict[int, set[int]] = {}
    for topic in range(3):
        for word in sorted(range(12), key=lambda word: (-topic_word[topic, word], word))[:count]:
            expected.setdefault(2 * word, set()).add(topic)
    several = label_words(fitted, fraction, "several")
    found = {t: set(np.flatnonzero(row)) for t, row in zip(several.tokens.tolist(), several.membership, strict=True)}
    assert found == expected
    best = {token: max(topics, key=lambda t: (topic_word[t, token // 2], -t)) for token, topics in expected.items()}
    one = label_words(fitted, fraction, "one")
    assert dict(zip(one.tokens.tolist(), one.topic.tolist(), strict=True)) == best
    assert one.topics == len(set(best.values()))
    assert one.name == f"{fraction:g}/one/seed3"


def test_topics_and_thresholds_without_words_are_left_out_with_a_note() -> None:
    # Both words of topic 1 are likelier in topic 0; topic 2 has two words of its own.
    topic_word = np.array([[0.4, 0.3, 0.1, 0.1, 0.1], [0.3, 0.29, 0.21, 0.1, 0.1], [0.1, 0.1, 0.1, 0.4, 0.3]])
    fits = [fabricated(topic_word)]
    found, notes = label_fits(fits, TopicOptions(topics=3, fractions=(0.1, 0.2)))
    # A threshold of 0.1 keeps one word per topic: no two words share one.
    assert [(each.fraction, each.assignment) for each in found] == [(0.2, "one"), (0.2, "several")]
    assert [each.topics for each in found] == [2, 3]
    assert notes[-1].endswith("threshold 0.1 (one), 0.1 (several)")
    # The control: with words for all topics and thresholds there is nothing to note.
    both = np.array([[0.4, 0.3, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 0.4, 0.3]])
    assert label_fits([fabricated(both)], TopicOptions(topics=2, fractions=(0.2,)))[1] == []
    with pytest.raises(InputError, match=r"no threshold of 0\.1 gives words that share a topic and words that do not"):
        label_fits(fits, TopicOptions(topics=3, fractions=(0.1,)))


def test_defaults_are_the_papers_where_the_corpus_allows_and_fit_it_elsewhere() -> None:
    assert (fitting_topics(29_000, 100_000), fitting_fractions(29_000)) == (100, (0.0005, 0.001, 0.002))
    assert (fitting_topics(2_000, 5_000), fitting_topics(29_000, 400), fitting_topics(90, 10)) == (40, 20, 2)
    for vocabulary in (200, 777, 1_000, 3_210, 7_999):
        kept = [words_per_topic(fraction, vocabulary) for fraction in fitting_fractions(vocabulary)]
        assert all(wanted <= words <= 1.2 * wanted + 1 for words, wanted in zip(kept, (5, 10, 20), strict=True))
    # Of very few words a threshold of 20 is no share at all.
    assert fitting_fractions(15) == (0.27, 0.6)
    assert fitting_fractions(3) == (0.5,)
    # The control: the paper's smallest threshold would keep a single word there.
    assert words_per_topic(0.0005, 777) == 1


def test_a_corpus_that_is_too_small_gets_one_sentence_with_all_that_it_lacks(tmp_path: Path) -> None:
    passages, tokenizer = planted_passages(tmp_path / "text", documents=30)
    words = Words.of(passages, tokenizer)
    with pytest.raises(InputError) as refused:
        fit_topics(passages, words, TopicOptions(), Fitting(tmp_path / "fits"))
    message = str(refused.value)
    for part in ("15 articles to fit topics on (20", "15 articles to measure on (20", "32 different words to fit"):
        assert part in message
    assert "\n" not in message
    # Who says what to try gets it.
    fit_topics(passages, words, ONCE, Fitting(tmp_path / "fits", judged=False))


def test_lda_finds_planted_topics_and_repeats_exactly() -> None:
    bags = planted_bags(topics=4, words=10, documents=150, length=30)
    fitted = fit_lda(bags, *PLANTED, 0)
    assert recovered(fitted, 10) == 1
    assert np.allclose(fitted.topic_word.sum(axis=1), 1, atol=1e-5)
    again, other = fit_lda(bags, *PLANTED, 0), fit_lda(bags, *PLANTED, 1)
    assert (again.topic_word == fitted.topic_word).all()
    assert (other.topic_word != fitted.topic_word).any()
    assert stability([top_words(each.topic_word) for each in (fitted, other)]) == 1
    # Without topics in the documents there is nothing to find.
    shuffled = planted_bags(topics=1, words=40, documents=150, length=30)
    assert recovered(fit_lda(shuffled, *PLANTED, 0), 10) == 0


def test_topics_are_fitted_on_one_half_of_the_articles_unless_told_otherwise(tmp_path: Path) -> None:
    passages, tokenizer = planted_passages(tmp_path / "text")
    words = Words.of(passages, tokenizer)
    [fitted] = fit_topics(
        passages, words, TopicOptions(topics=4, iterations=60), Fitting(tmp_path / "fits", judged=False)
    )
    assert recovered(fitted, 8) == 1
    for split, chosen in ((True, passages.for_topics), (False, np.arange(len(passages)))):
        [one] = fit_topics(passages, words, ONCE, Fitting(tmp_path / "fits", halves=split, judged=False))
        whole = np.unique(np.concatenate([passages.spelled(passage) for passage in chosen.tolist()]))
        assert one.about.split == split
        assert np.isin(one.tokens, whole).all()
        assert len(one.tokens) == 32


def test_fits_are_found_again_and_saved_for_other_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passages, tokenizer = planted_passages(tmp_path / "text")
    options = TopicOptions(topics=4, iterations=20)
    words, fitting = Words.of(passages, tokenizer), Fitting(tmp_path / "fits", seeds=(0, 5))
    fits = fit_topics(passages, words, options, fitting)
    assert [one.seed for one in fits] == [0, 5]
    assert set(quality(fits)) == {"c_npmi", "diversity", "log_likelihood_per_word", "stability"}
    monkeypatch.setattr("topicscope.probing.topics.fit_lda", None)
    again = fit_topics(passages, words, options, fitting)
    save_topics(again, tmp_path)
    for loaded, one in zip(load_topics(tmp_path, passages, words), fits, strict=True):
        assert (loaded.topic_word == one.topic_word).all()
        assert (loaded.tokens == one.tokens).all()
        assert loaded.about == one.about
    with pytest.raises(InputError, match="not that of"):
        load_topics(tmp_path, passages, Words.of(None, word_tokenizer(3, 3)))
    for spoilt, sentence in (
        (fits[0].tokens[::-1], "do not fit each other"),
        (fits[0].tokens + 1_000, "have words beyond"),
    ):
        save_topics([replace(fits[0], tokens=np.ascontiguousarray(spoilt)), fits[1]], tmp_path)
        with pytest.raises(InputError, match=sentence):
            load_topics(tmp_path, passages, words)
    (tmp_path / "topics.safetensors").write_bytes(b"short")
    with pytest.raises(InputError, match="cannot be read"):
        load_topics(tmp_path, passages, words)


def collected(passages: Passages, tokenizer: Tokenizer, chosen: np.ndarray) -> Bags:
    return collect_bags(passages, Words.of(passages, tokenizer), chosen, stop_word_list("gensim"))


def brute_force(passages: Passages, tokenizer: Tokenizer, chosen: np.ndarray) -> list[list[int]]:
    documents = []
    for passage in chosen.tolist():
        kept = []
        for place in range(passages.offsets[passage], passages.offsets[passage + 1]):
            word = tokenizer.engine.id_to_token(int(passages.tokens[place]))
            if passages.spellings[place] >= 0 and word not in {"the", "[UNK]"} and len(word) >= 3:
                kept.append(int(passages.tokens[place]))
        documents.append(kept)
    return documents


def test_bags_hold_whole_words_that_are_no_stop_words_in_order(tmp_path: Path) -> None:
    passages, tokenizer = planted_passages(tmp_path, documents=15)
    chosen = passages.for_topics
    expected = brute_force(passages, tokenizer, chosen)
    bags = collected(passages, tokenizer, chosen)
    found = [
        bags.tokens[bags.words[first:last]].tolist()
        for first, last in zip(bags.offsets, bags.offsets[1:], strict=False)
    ]
    assert found == expected
    assert [bag.tolist() for bag in bags.documents()] == [
        np.searchsorted(bags.tokens, kept).tolist() for kept in expected if kept
    ]
    # Whole words only: the passages have more tokens of these than the bags.
    assert np.isin(passages.tokens, bags.tokens).sum() > len(
        collected(passages, tokenizer, np.arange(len(passages))).words
    )


def test_a_sample_has_at_most_the_stated_tokens_and_is_drawn_at_random() -> None:
    chosen, lengths = np.arange(100) * 2, np.full(100, 7)
    assert sample(chosen, lengths, 700, generator=np.random.default_rng(0)).tolist() == chosen.tolist()
    drawn = [sample(chosen, lengths, 350, generator=np.random.default_rng(seed)) for seed in range(200)]
    assert all(len(one) == 50 and (np.diff(one) > 0).all() and np.isin(one, chosen).all() for one in drawn)
    # Each passage is in half of the samples, to five standard errors.
    assert (abs(np.bincount(np.concatenate(drawn) // 2) - 100) < 5 * 50**0.5).all()


TOKENIZER = word_tokenizer(3, 3)
WORDS = Words.of(None, TOKENIZER)


def written(folder: Path, *rows: str) -> Path:
    path = folder / "topics.csv"
    path.write_text("\n".join(("word,topic", *rows)), encoding="utf-8-sig")
    return path


def test_own_topics_label_the_words_that_are_kept_whole(tmp_path: Path) -> None:
    own, split_words, without = read_own_topics(
        written(tmp_path, "aax,first", "abx,first", "aaxs,first", "bax, second", "bbx,second", "xxs,third"), WORDS
    )
    assert own.topic_names == ("first", "second")
    assert own.tokens.tolist() == [TOKENIZER.token(word) for word in ("aax", "abx", "bax", "bbx")]
    assert own.topic.tolist() == [0, 0, 1, 1]
    assert split_words == ["aaxs", "xxs"]
    assert without == ["third"]
    assert own.name == "own/one"
    # A word on several lines has several topics.
    own, _, _ = read_own_topics(written(tmp_path, "aax,first", "aax,second", "bax,second"), WORDS)
    assert own.membership.tolist() == [[True, True], [False, True]]
    assert own.name == "own/several"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            ["aax,first", "abx,first", "xxs,second"],
            r"has 1 topic .* \(without second, whose words the tokenizer splits",
        ),
        (["aax,first", "abx,first"], "has 1 topic .* of at most 2 such words: give two topics or more"),
        (["aax,first", "bax,second"], "has 2 topics .* of at most 1 such words"),
        (["aax,first", "abx,"], "missing required field `topic`"),
        (["aax,first", "abx"], "row 2 does not have one cell per column"),
        ([",first"], "missing required field `word`"),
        ([], "has no column word, or no row"),
        (['"aax,first'], "cannot be read"),
    ],
)
def test_own_topics_that_say_nothing_are_refused(tmp_path: Path, rows: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_own_topics(written(tmp_path, *rows), WORDS)


def test_files_that_are_no_such_table_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "topics.csv"
    with pytest.raises(InputError, match="cannot be read"):
        read_own_topics(path, WORDS)
    path.write_text("token;topic\nfrog;1\n")
    with pytest.raises(
        InputError, match="has no column word, or no row: give a CSV file with the columns word and topic"
    ):
        read_own_topics(path, WORDS)
    path.write_bytes(b"word,topic\n\xff,1\n")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        read_own_topics(path, WORDS)


def test_top_words_and_their_diversity() -> None:
    assert top_words(np.array([[0.1, 0.4, 0.1, 0.4]]), 3).tolist() == [[1, 3, 0]]
    assert diversity(np.array([[0, 1], [2, 3]])) == 1
    assert diversity(np.array([[0, 1], [1, 0]])) == 0.5


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.integers(0, 10_000))
def test_stability_is_the_mean_jaccard_index_of_the_best_matching(seed: int) -> None:
    draw = np.random.default_rng(seed)
    one, other = (np.array([draw.choice(9, 3, replace=False) for _ in range(4)]) for _ in range(2))
    jaccard = np.array([[len({*a} & {*b}) / len({*a} | {*b}) for b in other.tolist()] for a in one.tolist()])
    best = jaccard[linear_sum_assignment(jaccard, maximize=True)].mean()
    assert np.isclose(stability([one, other]), best)  # type: ignore[arg-type]
    assert stability([one, one[::-1, ::-1], one]) == 1
    assert stability([one]) is None


def test_topics_whose_words_occur_together_are_more_coherent_than_mixed_ones() -> None:
    pure, mixed = (planted_bags(topics=each, words=40 // each, documents=80, length=40) for each in (4, 1))
    scores = [fit_lda(bags, *PLANTED, 0, judged=True).about.c_npmi for bags in (pure, mixed)]
    assert cast(float, scores[0]) > 0.4 > cast(float, scores[1]) + 0.3
    assert fit_lda(pure, 2, 1, 0).about.c_npmi is None


# Topic models of other libraries.

GROUPS = [["frog", "toad", "newt"], ["flute", "cello", "organ"]]
DOCUMENTS = [
    [str(word) for word in np.random.default_rng(seed).choice(GROUPS[seed % 2], size=20)] for seed in range(60)
]


def of_gensim() -> Any:
    corpora, models = pytest.importorskip("gensim.corpora"), pytest.importorskip("gensim.models")
    dictionary = corpora.Dictionary(DOCUMENTS)
    bags = [dictionary.doc2bow(document) for document in DOCUMENTS]
    return models.LdaModel(bags, num_topics=2, id2word=dictionary, passes=5, random_state=0)


def of_tomotopy() -> Any:
    model = pytest.importorskip("tomotopy").LDAModel(k=2, seed=1)
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


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [of_gensim, of_tomotopy, of_scikit_learn, BERTopicStandIn])
def test_models_of_every_library_give_their_topics_words(make: Any, tmp_path: Path) -> None:
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
