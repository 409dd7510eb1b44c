"""The page's part on probes: figures that can be compared, nothing without its uncertainty, and notes on the corpus."""

from pathlib import Path
from typing import Any

from topicscope.records import Comparison, CorpusRow, ProbeRow
from topicscope.reporting.page.probes import probe_images, probe_notes, ratio_text


def measured(ratio: float | None, **more: Any) -> Comparison:
    """A measure of a row of probe.json."""
    low, high = (None, None) if ratio is None else (ratio - 0.1, ratio + 0.1)
    numbers = {"ratio": ratio, "low": low, "high": high, "p": 0.01}
    difference = {"difference": 0.5, "difference_low": 0.25, "difference_high": 0.75}
    return Comparison(**(numbers | difference | more))


def test_a_difference_in_place_of_a_ratio_has_its_interval_and_its_star() -> None:
    assert ratio_text(measured(None)) == "no ratio; difference 0.50 [0.25, 0.75] *"
    assert ratio_text(measured(None, p=0.5)) == "no ratio; difference 0.50 [0.25, 0.75]"
    alone = measured(None, difference_low=None, difference_high=None)
    assert ratio_text(alone) == "no ratio; difference 0.5 (no interval) *"
    assert ratio_text(measured(2.0)) == "2.00 [1.90, 2.10] *"
    assert ratio_text(measured(2.0, low=None, high=None)) == "2 (no interval) *"
    assert ratio_text(measured(None, difference=None)) == ratio_text(Comparison()) == "–"


def test_drawings_are_in_the_order_of_the_page_and_other_files_are_left(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    for name in ("heads-0.001.svg", "topics-1.svg", "ratios-one-matrix.svg", "depth.svg", "depth.png", "mine.svg"):
        (tmp_path / "figures" / name).touch()
    names = [path.name for path in probe_images(tmp_path)]
    assert names == ["depth.svg", "topics-1.svg", "ratios-one-matrix.svg", "heads-0.001.svg"]


def about(tokenizer: str, **more: Any) -> CorpusRow:
    """A row of corpus.json."""
    empty: dict[str, Any] = {
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
    }
    return CorpusRow(**(empty | more))


def grounded(model: str, tokenizer: str) -> ProbeRow:
    """What a row of probe.json says of the model's ground."""
    ground: dict[str, Any] = {"tokenizer": tokenizer, "length": 126}
    return ProbeRow(model=model, revision="", assignment="one", embedding="matrix", **ground)


def test_faults_of_the_corpus_and_the_quality_of_topics_are_sentences() -> None:
    size = "text.gz: 1,200 articles, 3,400 passages; measured on 1,700."
    full = about(
        "a" * 20,
        problems=["text.gz: 3 broken lines were left out."],
        words_left_out=[f"word{place}" for place in range(22)],
        words_without_attention=["toad"],
        topic_quality={"c_npmi": 0.12345, "diversity": 0.9, "stability": None},
    )
    first, problem, words, absent, topics = probe_notes([full], [])
    assert (first, problem) == (size, "text.gz: 3 broken lines were left out.")
    assert words.startswith('own topics: the tokenizer of "bert" splits these words, which are left out (')
    assert words.endswith("word19 and 2 more.")
    assert absent.startswith("own topics: 1 of 50 words are in no passage that is measured")
    assert absent.endswith(": toad.")
    assert topics == "topics: c_npmi 0.123, diversity 0.900."
    *_, weak = probe_notes([about("a" * 20, topic_quality={"c_npmi": -0.2})], [])
    assert weak.startswith("topics: c_npmi -0.200. Topics may be weak: with c_npmi below 0, their likeliest words ")
    # The control: what there is not has no note.
    assert probe_notes([about("a" * 20)], []) == [size]


def test_with_several_tokenizers_each_note_says_of_which_models_it_is() -> None:
    rows = [grounded("bert", "a" * 20), grounded("gpt2", "b" * 20), grounded("bert-large", "a" * 20)]
    one, other = probe_notes([about("a" * 20), about("b" * 20)], rows)
    assert one.startswith("for bert and 1 more (tokenizer aaaaaaaa, passages of 126 tokens): text.gz: ")
    assert other.startswith("for gpt2 (tokenizer bbbbbbbb, passages of 126 tokens): text.gz: ")
    # The control: with one, all notes are of all models.
    assert probe_notes([about("a" * 20)], rows)[0].startswith("text.gz: ")
