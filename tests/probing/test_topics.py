import math
from pathlib import Path
from statistics import mean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.planted import planted_bags, planted_passages, word_tokenizer
from topicscope.errors import InputError
from topicscope.probing.topics import (
    Bags,
    FittedTopics,
    LdaSettings,
    fit_lda,
    fit_topics,
    label_words,
    load_topics,
    quality,
    save_topics,
    words_per_topic,
)
from topicscope.scale import versions

PLANTED = LdaSettings(topics=4, iterations=60, coherence=False)


def fabricated(topic_word: np.ndarray, tokens: np.ndarray | None = None) -> FittedTopics:
    words = topic_word.shape[1]
    tokens = np.arange(words, dtype=np.int32) * 2 if tokens is None else tokens
    counts = np.ones(words, dtype=np.int64)
    return FittedTopics(tokens, topic_word.astype(np.float32), counts, {"seed": 3})


def recovered(fitted: FittedTopics, words: int) -> float:
    """Share of the planted topics whose words are the likeliest ones of a fitted topic."""
    found = {frozenset(np.argsort(-row)[:words].tolist()) for row in fitted.topic_word}
    topics = fitted.topic_word.shape[1] // words
    return mean([frozenset(range(t * words, (t + 1) * words)) in found for t in range(topics)])


def test_words_a_topic_are_the_papers_for_29000_to_29499_words_and_no_others() -> None:
    def pairs(vocabulary: int) -> list[int]:
        return [math.comb(words_per_topic(fraction, vocabulary), 2) for fraction in (0.0005, 0.001, 0.002)]

    assert [v for v in range(28_000, 31_000) if pairs(v) == [105, 435, 1711]] == list(range(29_000, 29_500))


def test_words_a_topic_take_the_fraction_as_it_is_written() -> None:
    assert words_per_topic(0.29, 100) == 30
    assert math.floor(0.29 * 100) == 28


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
    if set(best.values()) == {0, 1, 2}:
        one = label_words(fitted, fraction, "one")
        assert dict(zip(one.tokens.tolist(), one.topic.tolist(), strict=True)) == best
        assert one.name == f"{fraction:g}/one/seed3"
    else:
        with pytest.raises(InputError, match="has no word of its own"):
            label_words(fitted, fraction, "one")


def test_a_word_likeliest_in_a_topic_that_does_not_keep_it_stays_where_it_is_kept() -> None:
    # Word 0 is likeliest in topic 0 and kept there; word 2 is kept by topic 1 though likelier in topic 0.
    topic_word = np.array([[0.4, 0.3, 0.25, 0.05], [0.1, 0.1, 0.2, 0.6]])
    found = label_words(fabricated(topic_word), 0.25, "one")
    assert dict(zip(found.tokens.tolist(), found.topic.tolist(), strict=True)) == {0: 0, 2: 0, 4: 1, 6: 1}


def test_an_empty_topic_and_fractions_without_pairs_are_refused() -> None:
    twice = np.array([[0.4, 0.3, 0.2, 0.1], [0.3, 0.29, 0.21, 0.2]])
    assert label_words(fabricated(twice), 0.25, "several").words == 2
    with pytest.raises(InputError, match=r"Topic 1 of LDA's seed 3 has no word of its own at fraction = 0\.25"):
        label_words(fabricated(twice), 0.25, "one")
    with pytest.raises(InputError, match=r"one word a topic, so no pair: give 0\.25 or more"):
        label_words(fabricated(twice), 0.2, "several")
    for fraction in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(InputError, match="give a number between 0 and 1"):
            label_words(fabricated(twice), fraction, "one")


def test_lda_finds_planted_topics_and_repeats_exactly() -> None:
    bags = planted_bags(topics=4, words=10, documents=150, length=30)
    fitted = fit_lda(bags, PLANTED, 0)
    assert recovered(fitted, 10) == 1
    assert np.allclose(fitted.topic_word.sum(axis=1), 1, atol=1e-5)
    again, other = fit_lda(bags, PLANTED, 0), fit_lda(bags, PLANTED, 1)
    assert (again.topic_word == fitted.topic_word).all()
    assert (other.topic_word != fitted.topic_word).any()
    assert quality([fitted, other])["stability"] == 1
    # Without topics in the documents there is nothing to find.
    shuffled = planted_bags(topics=1, words=40, documents=150, length=30)
    assert recovered(fit_lda(shuffled, PLANTED, 0), 10) == 0


def test_topics_are_fitted_on_one_half_of_the_articles_unless_told_otherwise(tmp_path: Path) -> None:
    passages, tokenizer = planted_passages(tmp_path / "text")
    [fitted] = fit_topics(passages, tokenizer, PLANTED, folder=tmp_path / "fits")
    assert recovered(fitted, 8) == 1
    for split, chosen in ((True, passages.for_topics), (False, np.arange(len(passages)))):
        once = LdaSettings(topics=4, iterations=1, coherence=False, split=split)
        [one] = fit_topics(passages, tokenizer, once, folder=tmp_path / "fits")
        whole = [passages.whole_tokens(passage) for passage in chosen.tolist()]
        assert one.description["words_fitted"] == np.isin(np.concatenate(whole), one.tokens).sum()
        assert (one.counts == [(np.concatenate(whole) == token).sum() for token in one.tokens]).all()


def test_fits_are_found_again_and_saved_for_other_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passages, tokenizer = planted_passages(tmp_path / "text")
    twice = LdaSettings(topics=4, iterations=20, seeds=(0, 5))
    fits = fit_topics(passages, tokenizer, twice, folder=tmp_path / "fits")
    assert [one.seed for one in fits] == [0, 5]
    assert set(quality(fits)) == {"c_npmi", "c_v", "diversity", "log_likelihood_per_word", "stability"}
    monkeypatch.setattr("topicscope.probing.topics.fit_lda", None)
    again = fit_topics(passages, tokenizer, twice, folder=tmp_path / "fits")
    save_topics(again, tmp_path)
    for loaded, one in zip(load_topics(tmp_path, tokenizer), fits, strict=True):
        assert (loaded.topic_word == one.topic_word).all()
        assert (loaded.tokens == one.tokens).all()
        assert loaded.description == one.description
    with pytest.raises(InputError, match="which is not that of"):
        load_topics(tmp_path, word_tokenizer(3, 3))
    (tmp_path / "topics.safetensors").write_bytes(b"short")
    with pytest.raises(InputError, match="has no fitted topics that can be read"):
        load_topics(tmp_path, tokenizer)


def test_another_version_of_a_library_fits_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passages, tokenizer = planted_passages(tmp_path / "text")
    once, fitted = LdaSettings(topics=4, iterations=1, coherence=False), []

    def counted(bags: Bags, settings: LdaSettings, seed: int) -> FittedTopics:
        fitted.append(seed)
        return fit_lda(bags, settings, seed)

    monkeypatch.setattr("topicscope.probing.topics.fit_lda", counted)
    known = versions()
    for tomotopy, fits in (("1", 1), ("1", 1), ("2", 2)):
        monkeypatch.setattr("topicscope.probing.topics.versions", lambda given=tomotopy: known | {"tomotopy": given})
        [found] = fit_topics(passages, tokenizer, once, folder=tmp_path / "fits")
        assert len(fitted) == fits
    assert found.description["corpus"] == passages.description["corpus"]


@pytest.mark.slow
def test_fits_in_several_processes_equal_those_in_one(tmp_path: Path) -> None:
    passages, tokenizer = planted_passages(tmp_path / "text")
    three = LdaSettings(topics=4, iterations=20, seeds=(0, 1, 2), coherence=False)
    alone = fit_topics(passages, tokenizer, three, folder=tmp_path / "one")
    together = fit_topics(passages, tokenizer, three, folder=tmp_path / "two", workers=2)
    assert all((a.topic_word == b.topic_word).all() for a, b in zip(alone, together, strict=True))


def test_fewer_words_than_topics_are_refused(tmp_path: Path) -> None:
    passages, tokenizer = planted_passages(tmp_path / "text", documents=20)
    with pytest.raises(InputError, match="topics = 40 is not allowed with 32 words"):
        fit_topics(passages, tokenizer, LdaSettings(topics=40), folder=tmp_path)
