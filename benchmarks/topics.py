"""Writes the part on topics of docs/performance.md: LDA by tomotopy against gensim. Takes minutes."""

import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
from gensim.models import LdaModel

from pages import write_part
from topicscope.probing.topics import (
    Bags,
    collect_bags,
    diversity,
    fit_lda,
    top_words,
)
from topicscope.text.corpora import open_corpus
from topicscope.text.stop_words import stop_word_list
from topicscope.text.tokenizers import load_tokenizer
from topicscope.text.tokens import write_passages
from topicscope.text.words import Words

TOPICS = 100
ITERATIONS = (100, 200, 400)
PASSES = (1, 10, 30)
# Documents' topics are found again by as many rounds of EM, for all fits alike.
ROUNDS = 40
PRIOR = 0.1


@dataclass(frozen=True)
class Outcome:
    name: str
    seconds: float
    held_out: float
    diversity: float


def main() -> None:
    fitted, held_out = halves()
    outcomes = [measure(f"tomotopy, {count} iterations", gibbs(fitted, count), held_out) for count in ITERATIONS]
    for passes in PASSES:
        outcomes.append(measure(f"gensim, {passes} passes", variational(fitted, passes), held_out))
    write_part("topics", page(fitted, held_out, outcomes))


def halves() -> tuple[Bags, Bags]:
    """The words of each half of wiki-sample's articles, the second with the first one's vocabulary."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = load_tokenizer("minilm")
        passages = write_passages(open_corpus("wiki-sample"), tokenizer, length=126, folder=Path(folder))
        one, other = (
            collect_bags(passages, Words.of(passages, tokenizer), chosen, stop_word_list("gensim"))
            for chosen in (passages.for_topics, passages.for_measures)
        )
    place = np.searchsorted(one.tokens, other.tokens)
    known = place < len(one.tokens)
    known[known] = one.tokens[place[known]] == other.tokens[known]
    kept = known[other.words]
    before = np.concatenate([[0], np.cumsum(kept)])
    words = place[other.words[kept]].astype(np.int32)
    return one, Bags(words, before[other.offsets], one.tokens)


def gibbs(bags: Bags, iterations: int) -> Callable[[], np.ndarray]:
    return lambda: fit_lda(bags, TOPICS, iterations, 0).topic_word


def variational(bags: Bags, passes: int) -> Callable[[], np.ndarray]:
    def fit() -> np.ndarray:
        corpus = [counted(document) for document in bags.documents()]
        words = {word: str(word) for word in range(len(bags.tokens))}
        # The same priors as tomotopy begins with, the documents' fitted too.
        model = LdaModel(corpus, TOPICS, words, passes=passes, alpha="auto", eta=0.01, random_state=0)
        return model.get_topics()

    return fit


def counted(document: np.ndarray) -> list[tuple[int, int]]:
    words, counts = np.unique(document, return_counts=True)
    return list(zip(words.tolist(), counts.tolist(), strict=True))


def measure(name: str, fit: Callable[[], np.ndarray], held_out: Bags) -> Outcome:
    start = time.process_time()
    topic_word = fit()
    seconds = time.process_time() - start
    outcome = Outcome(name, seconds, completion(topic_word, held_out), diversity(top_words(topic_word)))
    print(outcome)
    return outcome


def completion(topic_word: np.ndarray, bags: Bags) -> float:
    """Log-likelihood per word of every second word of each passage, its topics found from the other words."""
    topic_word = topic_word.astype(np.float64) + 1e-12
    topic_word /= topic_word.sum(axis=1, keepdims=True)
    total, words = 0.0, 0
    for document in bags.documents():
        seen, asked = topic_word[:, document[0::2]], topic_word[:, document[1::2]]
        weights = np.full(TOPICS, 1 / TOPICS)
        for _ in range(ROUNDS):
            share = weights[:, None] * seen
            counts = (share / share.sum(axis=0)).sum(axis=1) + PRIOR
            weights = counts / counts.sum()
        total += np.log(weights @ asked).sum()
        words += asked.shape[1]
    return total / words


def page(fitted: Bags, held_out: Bags, outcomes: list[Outcome]) -> str:
    lines = [
        "## LDA: tomotopy against gensim\n",
        "Written by `benchmarks/topics.py`; do not edit. "
        f"tomotopy {version('tomotopy')}, gensim {version('gensim')}, Python {platform.python_version()}, one thread. "
        "Times are the processor's.\n",
        f"wiki-sample as minilm's tokenizer sees it, in passages of 126 tokens; {TOPICS} topics fitted on one half of "
        f"the articles ({len(fitted.documents()):,} passages, {len(fitted.words):,} words, {len(fitted.tokens):,} "
        f"distinct), judged on the other ({len(held_out.documents()):,} passages, {len(held_out.words):,} words). "
        "Priors, fitted meanwhile by both, begin differently: 0.1 for the topics of a document by tomotopy "
        "(`auto` by gensim's `LdaModel`, from 1/100), 0.01 for the words of a topic. "
        "*Held-out*: log-likelihood per word of every second "
        f"word of a passage, whose topics are found from its other words by {ROUNDS} rounds of the same EM for all.\n",
        "| | seconds | held-out log-likelihood per word | diversity |",
        "|---|---:|---:|---:|",
    ]
    lines += [f"| {one.name} | {one.seconds:.1f} | {one.held_out:.3f} | {one.diversity:.2f} |" for one in outcomes]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
