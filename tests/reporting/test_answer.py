"""The answer is made from the numbers, by the rule that stands beside it."""

from typing import Any

import msgspec

from topicscope.records import Comparison, CorpusRow, LayerAttention, PairedRow, ProbeRow
from topicscope.reporting import answer
from topicscope.reporting.answer import answers, latex, paired, paired_answers, probe_notes, where_strongest


def contrast(ratio: float | None, low: float, high: float, p: float, auc_high: float = 0.7) -> dict[str, Any]:
    difference = {"difference": low, "difference_low": low, "difference_high": high}
    return {"ratio": ratio, "low": low, "high": high, "p": p, "q": p, "p_all_layers": p, **difference} | {
        "auc": auc_high - 0.02,
        "auc_low": auc_high - 0.04,
        "auc_high": auc_high,
    }


YES, NO = contrast(1.5, 1.4, 1.6, 0.001), contrast(1.0, 0.99, 1.01, 0.6, auc_high=0.51)


def topic(cosine: dict[str, Any], attention: dict[str, Any], hidden: dict[str, Any]) -> dict[str, Any]:
    return {"topic": 0, "words": [], "kept": 2, "cosine": cosine, "attention": attention, "hidden": hidden}


def row(model: str, found: dict[str, Any], **more: Any) -> ProbeRow:
    layers = [
        {"layer": place, "words": 9, "cosine": each, "centred_cosine": each}
        for place, each in enumerate((NO, found, found))
    ]
    by_layer = [each | {"layer": layer} for layer, each in ((1, NO), (2, found))]
    numbers = {"cosine": found, "dot": found, "attention": found, "attention_by_layer": by_layer}
    about = {"model": model, "revision": "", "fraction": 0.002, "assignment": "one", "embedding": "matrix", "topics": 3}
    states = {"hidden_by_layer": layers, "by_topic": [topic(found, found, found)]}
    return msgspec.convert(about | numbers | states | more, ProbeRow)


def verdict(found: dict[str, Any]) -> str:
    return answer.verdict(msgspec.convert(found, Comparison), found["p"])


def test_verdicts_follow_the_rule() -> None:
    assert verdict(YES) == "yes"
    assert verdict(NO) == "no"
    # Neither: an interval that includes 1 with a large AUC, and a test that does not agree with the interval.
    assert verdict(contrast(1.2, 0.9, 1.5, 0.2)) == "unclear"
    assert verdict(contrast(1.5, 1.4, 1.6, 0.2)) == "unclear"
    # Where there is no ratio, the difference decides.
    assert verdict(contrast(None, 0.1, 0.2, 0.001)) == "yes"
    assert verdict(contrast(None, -0.1, 0.2, 0.001)) == "unclear"


def test_a_trained_and_an_untrained_model_get_their_own_sentences() -> None:
    trained, untrained, rule = answers([row("minilm", YES), row("random:minilm", NO)])
    assert "Embeddings: yes, 1.50× [1.40, 1.60]." in trained
    assert "Attention: yes, 1.50× [1.40, 1.60], strongest in layer 2." in trained
    assert "Hidden states: yes, from layer 1 on" in trained
    assert "1 of 3 have two words or more; encoded: 1 in the embeddings, 1 in attention, 1 in hidden states." in trained
    assert "Embeddings: no, 1.000× [0.990, 1.010]." in untrained
    assert "Hidden states: no" in untrained
    assert "encoded: 0 in the embeddings" in untrained
    assert rule.startswith("“Yes” means that p < 0.05")
    assert "one topic per word" in rule
    assert not any("by itself" in said for said in (trained, untrained))


def test_a_clear_whole_without_a_clear_topic_is_explained() -> None:
    [said, _] = answers([row("a", YES, by_topic=[topic(YES, NO, NO)])])
    assert (
        "encoded: 1 in the embeddings, 0 in attention, 0 in hidden states. In attention and hidden states no " in said
    )
    assert "no single topic is clear by itself, though all together are." in said


def test_the_answer_is_taken_from_the_largest_threshold_and_uses_labels() -> None:
    [said, _] = answers(
        [row("a", NO, fraction=0.001), row("a", YES, label="mine"), row("a", NO, embedding="layer")][1:2]
    )
    assert said.startswith("mine. Embeddings: yes")
    [said, _] = answers([row("a", NO, fraction=0.001), row("a", YES)])
    assert "Embeddings: yes" in said
    assert answers([]) == []


def test_the_threshold_is_named_where_models_have_different_ones() -> None:
    one, other, _ = answers([row("a", YES), row("b", YES, fraction=0.01)])
    assert one.startswith("a (threshold 0.002). ")
    assert other.startswith("b (threshold 0.01). ")
    one, _, _ = answers([row("a", YES), row("b", YES)])
    assert one.startswith("a. ")


def test_what_is_left_among_matched_pairs_is_said_and_whether_co_occurrence_may_be_all() -> None:
    [said, rule] = answers([row("a", YES, matched={"cosine": YES, "attention": YES})])
    assert "Among matched pairs: embeddings 1.50× [1.40, 1.60], attention 1.50× [1.40, 1.60]. Hidden" in said
    assert "Matched pairs occur and co-occur about equally often" in rule
    left = contrast(None, -0.1, 0.3, 0.2)
    [said, _] = answers([row("a", YES, matched={"cosine": YES, "attention": left})])
    assert "attention same − different -0.10 [-0.10, 0.30]; co-occurrence may be the reason in attention. " in said
    # The ratio's interval decides if there is one, as it is the one that is shown.
    beside = {"cosine": YES, "attention": contrast(1.1, 0.9, 1.3, 0.2) | {"difference_low": 0.1}}
    assert "co-occurrence may be the reason in attention" in answers([row("a", YES, matched=beside)])[0]
    # There is nothing to explain where there is no topic structure, and nothing to say without numbers.
    [said, _] = answers([row("a", NO, matched={"cosine": YES, "attention": left})])
    assert "co-occurrence" not in said
    [said, _] = answers([row("a", YES, matched=None)])
    assert "matched" not in said


def test_strongest_layers_have_half_of_the_largest_excess() -> None:
    def strongest(*ratios: float | None, first: int = 1) -> str:
        layers = [LayerAttention(layer=layer, ratio=ratio) for layer, ratio in enumerate(ratios, first)]
        return where_strongest(layers)

    assert strongest(1.0, 1.5, 2.0, 1.6, 1.1, 1.9) == "strongest in layers 2–4, 6"
    # The numbers are the network's own.
    assert strongest(1.0, 1.5, 2.0, 1.6, 1.1, 1.9, first=4) == "strongest in layers 5–7, 9"
    assert strongest(3.0, 1.1) == "strongest in layer 1"
    assert strongest(1.6, 2.0, 1.5) == "spread over all layers"
    assert strongest(2.0) == strongest(0.9, None) == ""


def test_numbers_are_macros_of_a_table() -> None:
    narrow, unknown = contrast(0.99951, 0.99907, 0.99999, 0.2), contrast(None, -0.3, 0.1, 0.2)
    text = latex([row("a_b", YES, dot=narrow, attention=unknown), row("a_b", NO, centred=True)])
    macros = {
        "cosine": "1.50* [1.40, 1.60]",
        "cosine-ratio": "1.50",
        "cosine-high": "1.60",
        "cosine-p": "0.001",
        "dot": "0.99951 [0.99907, 0.99999]",
        "dot-high": "0.99999",
        "attention": r"$\Delta{}$ $-$0.30 [$-$0.30, 0.10]",
        "attention-ratio": "--",
    }
    for name, shown in macros.items():
        assert rf"\csname probe@a_b/0.002/one/matrix@{name}\endcsname{{{shown}}}" in text
    assert r"a\_b & 0.002 & one & matrix & \probe{a_b/0.002/one/matrix}{cosine} & \probe{a_b" in text
    assert text.count(r" \\") == 2
    assert text.isascii()


def compared(measure: str, least: float, most: float, p: float, **more: Any) -> PairedRow:
    about = {"model": "b", "against": "a", "fraction": 0.002, "assignment": "one", "measure": measure, "layer": None}
    difference = {"difference": (least + most) / 2, "difference_low": least, "difference_high": most}
    return msgspec.convert(about | difference | {"p": p} | more, PairedRow)


def test_two_models_are_told_apart_by_the_paired_test_and_its_interval_together() -> None:
    rows = [
        compared("attention", 0.1, 0.3, 0.001, ratio_of_ratios=1.5, low=1.4, high=1.6),
        # A ratio of ratios that may be below zero says nothing.
        compared("cosine matrix", -0.3, -0.1, 0.001, ratio_of_ratios=-0.1, low=-4.0, high=5.0),
        compared("hidden centred_cosine", -0.1, 0.1, 0.001, layer=0),
        compared("hidden centred_cosine", 0.1, 0.3, 0.001, layer=1),
        compared("hidden centred_cosine", 0.1, 0.3, 0.2, layer=2),
        # Not what the answer is taken from: another threshold, assignment and measure.
        compared("attention", -0.3, -0.1, 0.001, fraction=0.001),
        compared("attention", -0.3, -0.1, 0.001, assignment="several"),
        compared("dot matrix", -0.3, -0.1, 0.001),
    ]
    said, rule = paired_answers(rows, {"b": "mine"})
    assert said == (
        "mine against a. Attention: more, 1.50 [1.40, 1.60] times its ratio. "
        "Embeddings: less, -0.20 [-0.30, -0.10] in same − different. "
        "Hidden states: not told apart in layers 0, 2; more in layer 1."
    )
    said, _ = paired_answers([compared("hidden centred_cosine", -0.1, 0.1, 0.5, layer=layer) for layer in range(3)], {})
    assert said == "b against a. Hidden states: not told apart in any layer."
    assert rule.startswith("“More” and “less” mean that p < 0.05")
    assert paired(rows) == rows[:5]
    assert paired_answers([], {}) == []


# Notes on the corpus.


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
