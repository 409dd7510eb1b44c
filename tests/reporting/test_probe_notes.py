"""Notes on a probe's corpus and topics: what is said, and of which models where they differ."""

from typing import Any

from topicscope.reporting.page.probes import probe_notes


def about(tokenizer: str, **more: Any) -> dict[str, Any]:
    """A row of corpus.json."""
    return {
        "tokenizer": tokenizer,
        "tokenizer_name": "bert",
        "length": 126,
        "source": "text.gz",
        "articles": 1_200,
        "passages": 3_400,
        "measured": 1_700,
        "problems": [],
        "words": 50,
        "words_left_out": [],
        "words_without_attention": [],
        "topic_quality": None,
        **more,
    }


def probed(model: str, tokenizer: str) -> dict[str, Any]:
    """What a row of probe.json says of the model's ground."""
    return {"model": model, "revision": "", "tokenizer": tokenizer, "length": 126}


def test_faults_of_the_corpus_and_the_quality_of_topics_are_sentences() -> None:
    size = "text.gz: 1,200 articles, 3,400 passages; measured on 1,700."
    full = about(
        "a" * 20,
        problems=["text.gz: 3 broken lines were left out."],
        words_left_out=[f"word{place}" for place in range(22)],
        words_without_attention=["toad"],
        topic_quality={"c_npmi": 0.12345, "c_v": 0.5, "diversity": 0.9, "stability": None},
    )
    first, problem, words, absent, topics = probe_notes([full], [])
    assert (first, problem) == (size, "text.gz: 3 broken lines were left out.")
    assert words.startswith('own topics: the tokenizer of "bert" splits these words, which are left out: word0, ')
    assert words.endswith("word19 and 2 more.")
    assert absent.startswith("own topics: 1 of 50 words are in no passage that is measured")
    assert absent.endswith(": toad.")
    assert topics == "topics: c_npmi 0.123, c_v 0.500, diversity 0.900."
    # The control: of what there is not, nothing is said.
    assert probe_notes([about("a" * 20)], []) == [size]


def test_with_several_tokenizers_each_note_says_of_which_models_it_is() -> None:
    rows = [probed("bert", "a" * 20), probed("gpt2", "b" * 20), probed("bert-large", "a" * 20)]
    one, other = probe_notes([about("a" * 20), about("b" * 20)], rows)
    assert one.startswith("for bert and 1 more (tokenizer aaaaaaaa, passages of 126 tokens): text.gz: ")
    assert other.startswith("for gpt2 (tokenizer bbbbbbbb, passages of 126 tokens): text.gz: ")
    # The control: with one, all notes are of all models.
    assert probe_notes([about("a" * 20)], rows)[0].startswith("text.gz: ")
