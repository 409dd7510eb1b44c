"""``topicscope theory``."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.theory import known
from topicscope.cli import main
from topicscope.commands.theory import theory
from topicscope.theory import summary
from topicscope.theory.landscape import minimise
from topicscope.theory.setting import TheorySetting
from topicscope.theory.summary import Theory

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "own-topics" / "topics.csv")


def exact(**setting: Any) -> Theory:
    """Without what is drawn."""
    return theory(TheorySetting(**setting), samples=0, take_off=False)


def printed_json(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["theory", *words, "--json"]) == 0
    out = capsys.readouterr().out
    assert "NaN" not in out
    assert "Infinity" not in out
    found: dict[str, Any] = json.loads(out)
    return found


def test_theory_prints_the_papers_numbers_as_json_and_in_tables(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed_json(["--samples", "200", "--no-take-off"], capsys)
    assert found["theorem1"]["diagonal"] == pytest.approx(1 / 0.865)
    assert found["theorem1"]["bias"] == pytest.approx(-0.015 / 0.865 / 100)
    block = found["theorem2"]
    assert (block["mask_column"], block["same_topic"], block["different_topic"]) == pytest.approx(
        (0.0541908, 0.1080202, -0.0075867), abs=5e-8
    )
    assert block["loss"] == pytest.approx(0.95)
    assert found["theorem3"]["lambda2"] == pytest.approx(5866.67, abs=5e-3)
    assert found["attention_optimum"]["loss"] == pytest.approx(0.94610274, abs=5e-9)
    assert found["attention_optimum_free"]["loss"] == pytest.approx(0.94606882, abs=5e-9)
    assert found["finite"]["same_word"] == pytest.approx(0.2152863, abs=5e-8)
    assert found["finite"]["loss"] == pytest.approx(0.94532184, abs=5e-9)
    assert found["finite"]["loss_of_theorem2"] == pytest.approx(0.94562537, abs=5e-9)
    assert found["finite_topics"]["loss"] != pytest.approx(found["finite"]["loss"], abs=1e-4)
    bayes = found["bayes"]
    for floor in ("masked", "mask_queries"):
        for loss in ("cross_entropy", "squared"):
            assert bayes[floor][loss]["low"] < bayes[floor][loss]["value"] < bayes[floor][loss]["high"]
    assert bayes["masked"]["squared"]["value"] < bayes["mask_queries"]["squared"]["value"]
    assert "Monte-Carlo" in bayes["method"]
    assert main(["theory", "--samples", "50", "--no-take-off"]) == 0
    out = capsys.readouterr().out
    for text in (
        "λ₁(τ−1)",
        "0.10802023",
        "5.7629128",
        "0.94606882",
        "[MASK] queries alone, squared",
        "0.94532184",
        "50 documents",
    ):
        assert text in out


def test_the_same_seed_gives_the_same_floor_and_another_seed_another() -> None:
    setting = TheorySetting(length=(5, 9))
    first, again, other = (theory(setting, samples=50, take_off=False, seed=seed).bayes for seed in (1, 1, 2))
    assert first == again
    assert first != other


UNDEFINED = [
    ("--topics 2", "theorem1 theorem2 attention_optimum finite.loss_of_theorem2", "only one set of topics"),
    ("--keep 0.5 --random 0.5", "theorem1 theorem2 attention_optimum", "no position becomes"),
    ("--keep 0.58 --random 0.42", "theorem1 theorem2 attention_optimum bayes.mask_queries", "no position becomes"),
    ("--topics 5000", "bayes bayes_topics", "too many to sample"),
    ("--mask 1e-7", "bayes bayes_topics", "almost never has a masked position"),
    ("--mask 1 --keep 0 --random 0", "theorem2 theorem3", "no word of the document"),
    ("--random 0", "theorem3.lambda2 theorem3.high", "divides, is 0"),
    ("--keep 0", "theorem3.limit", "p_c is 0"),
    ("--words 1", "finite.same_topic", "no such pair"),
    ("--words 1", "theorem3.limit_fixed", "or v = 1"),
    ("--topics 1 --per-document 1", "finite.different_topic", "no such pair"),
    ("--keep 0.98 --random 0.01 --mask 0.01", "bayes.mask_queries", "too few of the sampled documents"),
    ("--per-document 1", "dynamics.time_ratio", "never takes off at infinite length"),
    ("", "dynamics.take_off dynamics.mask_take_off", "left out by --no-take-off"),
]


@pytest.mark.parametrize(("line", "names", "reason"), UNDEFINED)
def test_what_is_not_defined_is_null_with_a_reason(
    line: str, names: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*line.split(), "--samples", "20", "--no-take-off", "--length", "10", "12"]
    found = printed_json(words, capsys)
    for name in names.split():
        value: Any = found
        for key in name.split("."):
            value = value[key]
        assert value is None
        assert reason in found["reasons"][name]
    assert main(["theory", *words]) == 0
    assert "not defined: " in capsys.readouterr().out
    # The control: what has a number has no reason.
    assert not {name for name, value in found.items() if value is not None} & set(found["reasons"])


def test_bad_options_exit_with_2_and_one_sentence_and_write_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for line, said in (
        ("--topics 0", "topics = 0 is not allowed"),
        ("--topics 1", "per_document = 2 is not allowed"),
        ("--mask 0", "mask = 0.0 is not allowed"),
        ("--keep 0.7 --random 0.7", "keep + random"),
        ("--dirichlet 0", "dirichlet = [0.0] is not allowed"),
        ("--length 9 5", "length = [9, 5] is not allowed"),
        ("--samples -1", "samples = -1 is not allowed: give a whole number, 2 or more, or 0 to leave the Bayes"),
        ("--seed -1", "seed = -1 is not allowed"),
        ("--topix 3", "did you mean --topics?"),
        ("--optimizer lion", "give one of sgd, momentum, adam"),
        ("--topic-words data.csv", "data.csv cannot be read (No such file"),
        (f"--topic-words {EXAMPLE} --topics 3", "topics = 3 is not allowed: topic_words says how many"),
        (f"--topic-words {EXAMPLE} --dirichlet 1 2", "one for each of the 4 topics of topic_words"),
        (f"--topic-words {EXAMPLE} --per-document 5", "topic_words has 4 topics only"),
        ("--topics 300 --out large", "3,001 tokens need matrices too large"),
    ):
        assert main(["theory", *line.split(), "--json"]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert said in captured.err
        assert captured.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_unequal_dirichlet_parameters_agree_with_equal_ones_in_the_limit() -> None:
    equal = exact(topics=3, words=2, dirichlet=(0.4,))
    near = exact(topics=3, words=2, dirichlet=(0.4, 0.4, 0.4 * (1 + 1e-12)))
    far = exact(topics=3, words=2, dirichlet=(0.4, 0.4, 4.0))
    assert near.finite is not None
    for name in ("mask_column", "same_word", "same_topic", "different_topic", "loss", "loss_of_theorem2"):
        assert getattr(near.finite, name) == pytest.approx(getattr(equal.finite, name), rel=1e-7)
    assert known(far.finite).same_topic != pytest.approx(known(equal.finite).same_topic, rel=1e-2)
    assert far.finite_topics == equal.finite_topics


def test_an_optimum_that_is_not_attained_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "attention_optimum" not in exact().notes
    monkeypatch.setattr(summary, "minimise", lambda *a, **k: replace(minimise(*a, **k), attained=False))
    assert main(["theory", "--samples", "0", "--no-take-off"]) == 0
    assert capsys.readouterr().out.count("not attained") == 4


def test_theory_without_sampling_works_at_any_size() -> None:
    optimum = exact(topics=10**8, per_document=3000).attention_optimum
    assert math.isclose(known(optimum).weighted_average / 3000, 7.406, abs_tol=5e-4)


def test_the_dynamics_and_the_predicted_take_off_follow_the_optimiser(capsys: pytest.CaptureFixture[str]) -> None:
    dynamics = known(exact().dynamics)
    assert dynamics.stage1_topic_rate == pytest.approx(2 * 0.865**2 * 8 / (2 * 10 * 10 * 9))
    assert dynamics.stage2_topic_rate == pytest.approx(5.5748234e-5, rel=1e-8)
    narrow = printed_json(["--samples", "0", "--no-take-off", "--width", "16"], capsys)["dynamics"]
    assert narrow["time_ratio"] == pytest.approx(known(dynamics.time_ratio) * math.sqrt(16 / 101))
    small = ["--topics", "3", "--words", "3", "--length", "10", "20", "--samples", "0", "--keep", "0.4"]
    slow, fast = (printed_json([*small, "--rate", rate, "--scale", "0.1"], capsys) for rate in ("0.1", "0.2"))
    assert slow["dynamics"]["take_off"] == pytest.approx(2 * fast["dynamics"]["take_off"], rel=0.05)
    assert 0 < fast["dynamics"]["gain_at_take_off"] <= 1
    too_fast = printed_json([*small, "--rate", "100"], capsys)
    assert too_fast["dynamics"]["take_off"] is None
    assert "W^V diverges" in too_fast["reasons"]["dynamics.take_off"]


OVERLAPPING = np.array([[0.5, 0.3, 0.2, 0.0, 0.0], [0.0, 0.1, 0.2, 0.3, 0.4], [0.25, 0.0, 0.25, 0.0, 0.5]])


@pytest.fixture
def own_topics(tmp_path: Path) -> str:
    np.savetxt(tmp_path / "my data.csv", OVERLAPPING, delimiter=",")
    return str(tmp_path / "my data.csv")


def test_own_topics_have_their_class_averages_and_the_closed_forms_say_why_not(
    own_topics: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--topic-words", own_topics, "--length", "4", "6", "--samples", "0", "--out", str(tmp_path / "out")]
    found = printed_json(words, capsys)
    assert found == json.loads((tmp_path / "out" / "theory.json").read_text(encoding="utf-8"))
    assert found["setting"]["topics"] == 3
    for name in ("theorem1", "theorem3", "attention_optimum", "attention_optimum_diagonal", "dynamics"):
        assert found[name] is None
        assert "my data.csv has topics that are not disjoint" in found["reasons"][name]
    arrays = np.load(tmp_path / "out" / "theory.npz")
    # The likeliest topic of each word, by hand.
    topics = [1, 1, 3, 2, 3]
    for name in ("finite", "finite_topics", "theorem2"):
        entries: dict[str, list[float]] = {"same_word": [], "same_topic": [], "different_topic": []}
        for i, one in enumerate(topics, start=1):
            for j, other in enumerate(topics, start=1):
                kind = "same_word" if i == j else "same_topic" if one == other else "different_topic"
                entries[kind].append(arrays[name][i, j])
        for kind, values in entries.items():
            assert found[name][kind] == pytest.approx(np.mean(values), rel=1e-9)
        assert found[name]["mask_column"] == pytest.approx(arrays[name][1:, 0].mean())
    assert found["finite"]["loss"] < found["finite"]["loss_of_theorem2"] < 1
    assert (tmp_path / "out" / "optimum.png").read_bytes()[:4] == b"\x89PNG"
    assert "<svg" in (tmp_path / "out" / "optimum.svg").read_text(encoding="utf-8")
    assert main(["theory", *words]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_own_topics_that_are_the_papers_have_the_papers_numbers(tmp_path: Path) -> None:
    np.save(tmp_path / "equal.npy", np.kron(np.eye(3), np.full((1, 2), 0.5)))
    own, same, other = (
        exact(topic_words=str(tmp_path / "equal.npy")),
        exact(topics=3, words=2),
        exact(topics=2, words=3),
    )
    assert replace(own, setting=same.setting) == same
    assert replace(own, setting=other.setting) != other


def test_own_topics_are_printed_with_their_pattern(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["theory", "--topic-words", EXAMPLE, "--length", "40", "60", "--samples", "50"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "the block pattern is seen; a word counts" in printed
    assert "all topic sets listed" in printed
    # A long reason is given once.
    assert printed.count("has topics that are not disjoint") == 1
    assert "not defined: for the same reason" in printed


def test_theory_is_a_table_in_a_notebook() -> None:
    pytest.importorskip("pandas")
    found = exact(topic_words=EXAMPLE)
    assert found._repr_html_().startswith("<table>")
    assert found.to_frame()["finite.same_word"].tolist() == [known(found.finite).same_word]
