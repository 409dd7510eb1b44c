"""The page's part on probes: figures that can be compared, nothing without its uncertainty, and notes on the corpus."""

from typing import Any

import numpy as np
import pytest

from topicscope.files import Row
from topicscope.reporting.page.probes import head_figures, head_thresholds, probe_notes, ratio_figures, ratio_text


def measured(ratio: float | None, **more: Any) -> dict[str, Any]:
    """A measure of a row of probe.json."""
    ends = {"low": None if ratio is None else ratio - 0.1, "high": None if ratio is None else ratio + 0.1}
    return {
        "ratio": ratio,
        **ends,
        "difference": 0.5,
        "difference_low": 0.25,
        "difference_high": 0.75,
        "p": 0.01,
        **more,
    }


def probed(
    model: str, fraction: float | None = 0.001, heads: list[list[float | None]] | None = None, **more: Any
) -> Row:
    """A row of probe.json."""
    return {
        "model": model,
        "revision": "",
        "fraction": fraction,
        "assignment": "one",
        "embedding": "matrix",
        "centred": False,
        "words": 9,
        "topics": 3,
        "cosine": measured(2.0),
        "dot": measured(1.5),
        "attention": measured(1.3),
        "attention_by_layer_head": [[measured(ratio) for ratio in layer] for layer in heads or [[1.0, 2.0]]],
        **more,
    }


def test_maps_of_heads_of_all_models_have_one_scale_symmetric_about_no_structure() -> None:
    figures = head_figures([probed("trained", heads=[[8.0, 1.0]]), probed("untrained", heads=[[1.01, 0.99]])])
    trained, untrained = (figure["traces"][0] for figure in figures)
    for trace in (trained, untrained):
        assert (trace["zmin"], trace["zmax"]) == (-3, 3)
    assert trained["z"] == [[3, 0]]
    assert untrained["z"][0] == pytest.approx(np.log2([1.01, 0.99]), abs=1e-5)
    # White is the middle.
    assert trained["colorscale"][5] == [0.5, "#f7f7f7"]
    # Alone, noise is still pale: its scale does not shrink to it.
    (alone,) = head_figures([probed("untrained", heads=[[1.01, 0.99]])])
    assert alone["traces"][0]["zmax"] == 0.1


def test_a_map_of_heads_has_every_threshold_and_begins_with_the_largest() -> None:
    rows = [probed("one", 0.002, [[2.0]]), probed("one", 0.0005, [[4.0]]), probed("other", 0.002, [[16.0]])]
    assert head_thresholds(rows) == ["0.0005", "0.002"]
    one, other = head_figures(rows)
    assert {name: view["traces"][0]["z"] for name, view in one["views"].items()} == {"0.0005": [[2]], "0.002": [[1]]}
    # Each threshold has a scale of its own, over models.
    assert [view["traces"][0]["zmax"] for view in one["views"].values()] == [2, 4]
    assert one["traces"] == one["views"]["0.002"]["traces"]
    assert list(other["views"]) == ["0.002"]
    assert "Threshold 0.002, one topic per word." in one["text"]


def test_heads_without_a_ratio_are_blank_and_counted() -> None:
    (figure,) = head_figures([probed("one", None, [[2.0, None], [0.0, -1.0]])])
    assert figure["traces"][0]["z"] == [[1, None], [None, None]]
    assert figure["traces"][0]["zmax"] == 1
    assert "in 3 heads (blank)" in figure["text"]
    assert figure["text"].startswith("Own topics")
    (bare,) = head_figures([probed("one", heads=[[None]])])
    assert bare["text"] == "No head has a ratio."


def test_a_difference_in_place_of_a_ratio_has_its_interval_and_its_star() -> None:
    assert ratio_text(measured(None)) == "no ratio; difference 0.50 [0.25, 0.75] *"
    assert ratio_text(measured(None, p=0.5)) == "no ratio; difference 0.50 [0.25, 0.75]"
    assert (
        ratio_text(measured(None, difference_low=None, difference_high=None))
        == "no ratio; difference 0.5 (no interval) *"
    )
    assert ratio_text(measured(2.0)) == "2.00 [1.90, 2.10] *"
    assert ratio_text(measured(2.0, low=None, high=None)) == "2 (no interval) *"
    assert ratio_text(measured(None, difference=None)) == ratio_text(None) == "–"


def test_ratios_are_split_by_embedding_on_a_logarithmic_axis_with_a_word_where_there_is_none() -> None:
    layer = probed("one", embedding="layer", cosine=measured(1.1), dot=measured(-0.5))
    rows = [probed("one"), probed("two", cosine=measured(None)), layer, probed("one", centred=True)]
    figures = {figure["title"].split(":")[0]: figure for figure in ratio_figures(rows)}
    assert list(figures) == [
        "cosine, embedding matrix",
        "cosine, embedding layer",
        "dot product, embedding matrix",
        "dot product, embedding layer",
        "attention",
    ]
    markers, words = figures["cosine, embedding matrix"]["traces"]
    assert markers["y"] == ["one, 0.001, one", "two, 0.001, one"]
    assert markers["x"] == [2.0, None]
    assert markers["error_x"]["array"] == [pytest.approx(0.1), None]
    assert (words["y"], words["text"]) == (["two, 0.001, one"], ["Δ 0.50 [0.25, 0.75]"])
    assert "Δ: same − different topic" in figures["cosine, embedding matrix"]["text"]
    # The control: a panel with all of its ratios has no such remark.
    assert "Δ" not in figures["cosine, embedding layer"]["text"]
    axis = figures["cosine, embedding matrix"]["layout"]["xaxis"]
    assert axis["type"] == "log"
    # On the side of 1 that has more room: here above it, and below it if all ratios are.
    assert 1 < words["x"][0] < 10 ** axis["range"][1]
    (low, *_) = ratio_figures([probed("one", cosine=measured(0.3)), probed("two", cosine=measured(None))])
    assert 10 ** low["layout"]["xaxis"]["range"][0] < low["traces"][1]["x"][0] < 1
    assert 10 ** axis["range"][0] < 1 < 2.1 < 10 ** axis["range"][1]
    assert figures["dot product, embedding layer"]["traces"][1]["text"] == ["-0.5, off this axis"]
    (bare, *_) = ratio_figures([probed("one", cosine=measured(None, difference=None))])
    assert bare["traces"][1]["text"] == ["no pair"]
    # The attention of both embeddings is one.
    assert figures["attention"]["traces"][0]["y"] == ["one, 0.001, one", "two, 0.001, one"]


def test_a_ratio_without_an_interval_is_open_and_said_to_be() -> None:
    (figure, *_) = ratio_figures([probed("one", cosine=measured(2.0, low=None, high=None)), probed("two")])
    assert figure["traces"][0]["marker"]["symbol"] == ["circle-open", "circle"]
    assert "Open: no complete interval." in figure["text"]
    (figure, *_) = ratio_figures([probed("two")])
    assert "Open" not in figure["text"]


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


def grounded(model: str, tokenizer: str) -> dict[str, Any]:
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
    *_, weak = probe_notes([full | {"topic_quality": {"c_npmi": -0.2}}], [])
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
