"""Each measuring function against an independent computation on made-up runs, with a control that must fail."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.linalg import fractional_matrix_power

from support.runs import (
    PAPER,
    SEEDS,
    STEPS,
    TOPICS,
    decide,
    made_up,
    only,
    settings_of,
    untrained,
    with_embedding,
    with_value,
)
from topicscope.measure.run import Run
from topicscope.papers.claim import Rule, verdict
from topicscope.papers.needs import Experiment
from topicscope.papers.topic_structure import exact, experiments, stages, trained
from topicscope.papers.topic_structure.exact import gains, paper_moments
from topicscope.papers.topic_structure.experiments import MASKING, MILD_L2, UNIFORM
from topicscope.theory.finite_documents import finite_optimum, population_loss
from topicscope.theory.theorem2 import theorem2

SAME = (TOPICS[:, None] == TOPICS) & (TOPICS > 0) & (TOPICS[:, None] > 0)
OFF = SAME & ~np.eye(len(TOPICS), dtype=bool)
BETWEEN = (TOPICS[:, None] != TOPICS) & (TOPICS > 0) & (TOPICS[:, None] > 0)
# Words dealt out to topics in turn.
MIXED = np.concatenate([[0], 1 + np.arange(100) % 10])


@pytest.fixture(autouse=True, scope="module")
def fewer_documents() -> Iterator[None]:
    """Large samples are as large as tests need them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trained, "CONVEX_OPTIMUM_DOCUMENTS", 1_000)
        patch.setattr(exact, "GAIN_DOCUMENTS", 200)
        yield
    for function in (trained.large_sample, trained.convex_optimum, trained.exact_uniformity, gains):
        function.cache_clear()


# The claims as a whole.

# What an untrained model may pass, and why.
PASSES_UNTRAINED = {
    # That word queries are not trained at all is what it claims.
    "masking/all-masked",
    # Two untrained models look alike; that trained ones have blocks at all is for other claims.
    "section8.1/pattern",
    # Costs are compared with a model that is as bad; the comparison has its own test below.
    "section8.1/loss",
    "section4/embedding-alone",
    "section2/attention-for-embedding",
    "section5.2/uniform-attention",
    # Norms that never double are not visibly two-stage.
    "figure4/default",
}
ABOUT_RUNS = [
    claim for claim in PAPER.claims if claim.quantity.startswith(("trained.", "stages.")) and claim.needs
    and claim.source != "Figure 5"
]  # fmt: skip


def test_no_claim_on_training_holds_for_untrained_models(monkeypatch: pytest.MonkeyPatch) -> None:
    bags = stages.gradient_bags(settings_of("first-gradients/squared/scale-0.02"))
    monkeypatch.setattr(stages, "gradient_bags", lambda settings: bags)
    runs: dict[str, Any] = {}
    for claim in ABOUT_RUNS:
        for name, need in PAPER.needs_of(claim).items():
            if isinstance(need, Experiment) and name not in runs:
                runs[name] = untrained(need.settings)
    runs["figure4/predicted"] = {name: [100.0, 0.5] for name in runs}
    verdicts = {
        claim.id: decide(claim.id, {name: runs[name] for name in PAPER.needs_of(claim)}) for claim in ABOUT_RUNS
    }
    assert {name for name, decided in verdicts.items() if decided == "holds"} <= PASSES_UNTRAINED


# Blocks and embeddings.


def test_blocks_are_seen_and_not_with_words_dealt_out_to_topics() -> None:
    settings = settings_of("figure2/squared-adam")
    block, diagonal = with_value(0.1 * SAME, settings, noise=0.01), with_value(np.eye(101), settings, noise=0.01)
    for claim in ("figure2/blocks", "figure10/blocks", "robustness/blocks", "masking/blocks"):
        assert decide(claim, {"a": block}) == "holds"
        assert decide(claim, {"a": replace(block, theory={"word_topics": MIXED})}) == "fails"
        assert decide(claim, {"a": diagonal}) == "fails"


def test_blocks_stand_out_by_the_backgrounds_deviation_diagonal_left_out() -> None:
    settings = settings_of("figure2/squared-adam")
    run = with_value(0.1 * SAME + np.eye(101), settings, noise=0.03)
    matrix = run.value_products[0]
    expected = (matrix[OFF].mean() - matrix[BETWEEN].mean()) / matrix[BETWEEN].std()
    assert only(trained.blocks({"a": run})).values[0] == pytest.approx(expected)
    # Columns' means are nothing that softmax sees.
    shifted = with_value(0.1 * SAME + np.arange(101), settings, noise=0.03)
    plain = with_value(0.1 * SAME, settings, noise=0.03)
    centred, expected_centred = (only(trained.blocks({"a": run}, centred=True)).values for run in (shifted, plain))
    assert centred == pytest.approx(expected_centred)
    assert only(trained.blocks({"a": shifted})).values != pytest.approx(expected_centred)


def test_sums_over_topics_count_the_diagonal_and_are_compared_with_the_start() -> None:
    start, settings = untrained(settings_of("figure1/squared-adam")), settings_of("theorem1/squared-adam")
    assert only(trained.clause_3({"a": start})).values == pytest.approx(np.ones(SEEDS))
    larger = replace(start, weights={**start.weights, "embedding": 2 * start.weights["embedding"]})
    assert only(trained.clause_3({"a": larger})).values == pytest.approx(np.full(SEEDS, 4))
    # Ten words of 0.1 each in the own topic, nothing in another.
    member = (TOPICS[:, None] == np.arange(1, 11)).astype(float)
    run = with_embedding(np.hstack([member, np.zeros((101, 91))]) * np.sqrt(0.1), settings)
    assert only(trained.difference_of_sums({"a": run})).values == pytest.approx(np.ones(SEEDS))
    assert only(trained.other_topic_sums({"a": run})).value == pytest.approx(0)
    even = with_embedding(np.ones((101, 101)) * 0.01, settings)
    assert only(trained.other_topic_sums({"a": even})).value == pytest.approx(1)
    # The best embedding lacks nothing, and the untrained one the whole gain.
    values, vectors = np.linalg.eigh(trained.best_embedding().matrix)
    best = with_embedding(vectors * np.sqrt(values.clip(0)), settings)
    assert only(trained.embedding_excess({"a": best})).value == pytest.approx(0, abs=1e-6)
    assert only(trained.embedding_excess({"a": untrained(settings)})).value > 0.9


# Costs.


def at_loss(name: str, loss: float) -> Run:
    return made_up(settings_of(name), final={"held_out_loss": loss * (1 + 1e-4 * np.arange(SEEDS))})


def test_a_part_is_compared_with_the_better_of_the_models_that_contain_it() -> None:
    names = {"theorem1/squared-adam": 0.95, "figure1/squared-adam": 0.91, "losses/attention/squared": 0.89}
    measured = only(trained.cost_of_part({name: at_loss(name, loss) for name, loss in names.items()}, part="theorem1"))
    assert measured.value == pytest.approx(0.95 / 0.89 - 1, rel=1e-6)
    assert measured.details["compared_with"] == "losses/attention/squared"
    assert measured.details["share_of_the_gain"] == pytest.approx(0.06 / gains()["squared"].value, rel=1e-3)
    assert gains()["squared"].constant == pytest.approx(1 - 1 / 100)
    assert gains()["squared"].floor == pytest.approx(0.874, abs=0.01)


def test_a_part_that_beats_what_contains_it_gets_no_verdict() -> None:
    for loss, expected in ((0.89, "undecided"), (0.93, "holds"), (1.2, "fails")):
        losses = {"losses/attention/squared": loss, "figure1/squared-adam": 0.91}
        runs = {name: at_loss(name, own) for name, own in losses.items()}
        assert decide("section2/attention-for-embedding", runs) == expected
    with pytest.raises(AssertionError, match="equal steps"):
        trained.extra_loss(at_loss("theorem1/squared-adam", 0.95), at_loss("figure10/joint/squared-adam", 0.9))


def test_a_schedules_cost_is_a_share_of_the_gain() -> None:
    joint, name = at_loss("figure10/joint/squared-adam", 0.9), "section8.1/alternating/squared"
    for share, expected in ((0.05, "holds"), (0.2, "fails")):
        results = {
            "figure10/joint/squared-adam": joint,
            name: at_loss(name, 0.9 + share * gains()["squared"].value),
        }
        assert only(trained.schedule_cost(results)).value == pytest.approx(share, rel=1e-3)
        assert decide("section8.1/loss", results) == expected


def test_a_pattern_is_lost_if_joint_training_has_a_diagonal_and_the_schedule_blocks() -> None:
    settings = {loss: settings_of(f"figure10/joint/{loss}-adam") for loss in ("squared", "cross-entropy")}
    block, diagonal = 0.1 * SAME + 0.02 * np.eye(101), 0.1 * SAME + np.eye(101)
    for joint, expected in ((block, "holds"), (diagonal, "fails")):
        runs = {f"figure10/joint/{loss}-adam": with_value(joint, own, noise=0.001) for loss, own in settings.items()}
        runs |= {f"section8.1/two-stage/{loss}": with_value(block, own, noise=0.001) for loss, own in settings.items()}
        assert decide("section8.1/pattern", runs) == expected


# W^V and exact theory.


def test_the_trajectory_is_gradient_descent_step_by_step() -> None:
    moments = paper_moments()
    value = np.zeros((101, 101))
    for _ in range(50):
        value -= 0.5 * 2 * (value @ moments.second - moments.cross + MILD_L2 * value)
    np.testing.assert_allclose(trained.trajectory(0.5, 50, MILD_L2), value, atol=1e-12)
    # The closed form in the matrix's own powers.
    optimum = moments.cross @ np.linalg.inv(moments.second)
    power = fractional_matrix_power(np.eye(101) - 2 * 0.5 * moments.second, 50).real
    np.testing.assert_allclose(trained.trajectory(0.5, 50, 0.0), optimum @ (np.eye(101) - power), atol=1e-9)
    # A budget's rate leads where the paper's does in as much flow time; control: half of the time is another place.
    rate, steps = experiments.VALUE_SGD["squared"]
    equivalent = round(rate * steps / experiments.PAPER_RATE)
    there = trained.trajectory(experiments.PAPER_RATE, equivalent, MILD_L2)
    earlier = trained.trajectory(experiments.PAPER_RATE, equivalent // 2, MILD_L2)
    assert np.abs(trained.trajectory(rate, steps, MILD_L2) - there).max() < 0.002 * np.abs(there).max()
    assert np.abs(earlier - there).max() > 0.05 * np.abs(there).max()


def test_gradient_descent_lingers_at_theorem_2s_block_and_leaves_it() -> None:
    measured = trained.lingering({})
    enters, leaves = (measured.details[f"{name}_at_flow_time"] for name in ("enters", "leaves"))
    assert isinstance(enters, float)
    assert isinstance(leaves, float)
    for time, inside in ((0.97 * enters, False), (1.03 * enters, True), (0.97 * leaves, True), (1.03 * leaves, False)):
        place = trained.trajectory(0.5, round(time / 0.5), MILD_L2)
        assert (trained.from_theorem2([place])[0] < 0.1) == inside
    assert measured.value == pytest.approx((leaves - enters) / enters)


def test_distance_from_theorem_2_is_zero_there_and_large_at_the_optimum() -> None:
    settings = settings_of("figure2/squared-adam")
    block = with_value(theorem2(10, 10, MASKING), settings)
    assert only(trained.distance_from_theorem2({"a": block})).value == pytest.approx(0)
    optimum = only(trained.distance_from_theorem2({"a": with_value(finite_optimum(paper_moments()), settings)}))
    # From the paper's notes.
    assert optimum.value == pytest.approx((0.2152863 - 0.1080202) / (0.1080202 + 0.0075867), rel=1e-4)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_averages_are_compared_with_the_exact_matrix_of_the_runs_own_settings(optimizer: str) -> None:
    name = f"figure2/squared-{optimizer}"
    right = with_value(trained.exact_value(settings_of(name)), settings_of(name))
    rows = trained.averages_against_theory({name: right})
    assert [row.value for row in rows.values()] == pytest.approx([0] * 4, abs=1e-9)
    assert all(row.value == pytest.approx(1) for row in trained.uniformity({name: right}).values())
    # Control: the other optimiser's matrix, a diagonal for a block or the reverse, is far off.
    other = settings_of(f"figure2/squared-{'adam' if optimizer == 'sgd' else 'sgd'}")
    wrong = with_value(trained.exact_value(other), settings_of(name))
    same_word, *_ = trained.averages_against_theory({name: wrong}).values()
    assert verdict(Rule.parse("-1 .. 1"), same_word) == "fails"
    assert abs(only(trained.uniformity({name: wrong})).value - 1) > 0.3


@pytest.mark.parametrize("loss", ["squared", "cross-entropy"])
def test_the_objective_lacks_nothing_at_the_optimum_and_everything_at_zero(loss: str) -> None:
    settings = settings_of(f"figure2/{loss}-adam")
    if loss == "squared":
        best = finite_optimum(paper_moments(), MILD_L2)
        assert population_loss(best, paper_moments(), ridge=MILD_L2) < 0.9455
    else:
        optimum = trained.convex_optimum(MILD_L2)
        best = optimum.matrix(10, 10)
        share = (optimum.same_topic - optimum.different_topic) / (optimum.same_word - optimum.different_topic)
        assert trained.exact_uniformity(settings) == pytest.approx(share)
        without = replace(settings, training=replace(settings.training, l2=0.0))
        assert trained.exact_uniformity(without) < share
    assert only(trained.objective_excess({"a": with_value(best, settings)})).value == pytest.approx(0, abs=1e-9)
    assert only(trained.objective_excess({"a": with_value(0 * best, settings)})).value == pytest.approx(1)


# Attention.


def test_attention_to_topics_turns_the_claims_about_it() -> None:
    settings = settings_of("figure10/joint/squared-adam")
    jitter = 1 + 0.001 * np.arange(SEEDS)[:, None]
    topical = made_up(settings, final={"attention": np.array([5.0, 3.0, 1.0, 1.0, 5.0]) ** jitter})
    uniform = made_up(settings, final={"attention": np.ones((SEEDS, 5)) * jitter})
    for claim in ("table3/topic-average", "table3/other-words", "robustness/topic-average"):
        assert decide(claim, {"a": topical}) == "holds"
        assert decide(claim, {"a": uniform}) == "fails"
    one = made_up(settings, final={"attention": np.array([[5.0, 3.0, 1.0, 1.0, 5.0]])})
    assert only(trained.topic_average({"a": one})).value == pytest.approx((9 * 3 + 5) / 10)


def test_classes_explain_logits_that_are_one_number_per_class_and_not_random_ones() -> None:
    settings = settings_of("figure10/joint/squared-adam")
    draw = np.random.default_rng(0)
    logits = 2.0 * SAME + 3.0 * np.eye(101) + draw.normal(size=(SEEDS, 1, 101))
    identity = np.stack([np.eye(101)] * SEEDS)[:, None]
    explained = made_up(settings, weights={"key": identity, "query": logits[:, None]})
    assert only(trained.explained_by_classes({"a": explained})).values == pytest.approx(np.ones(SEEDS), abs=1e-3)
    noise = replace(explained, weights={"key": identity, "query": draw.normal(size=(SEEDS, 1, 101, 101))})
    assert only(trained.explained_by_classes({"a": noise})).value < 0.01


def test_the_exact_optimum_lacks_nothing_and_uniform_attention_the_whole_gain() -> None:
    settings = settings_of("table3/topic-sets/value-frozen")
    optimal = made_up(settings, final={"attention": np.array([[5.763, 5.763, 1.0, 1.0, 1.0]])})
    uniform = made_up(settings, final={"attention": np.ones((1, 5))})
    assert only(trained.landscape_excess({"a": optimal})).value == pytest.approx(0, abs=1e-4)
    assert only(trained.landscape_excess({"a": uniform})).value == pytest.approx(1)


# As released.


def test_growth_at_take_off_is_read_where_attention_first_takes_off() -> None:
    curves = {"attention/words": np.where(STEPS >= 300, 0.2, 0.0), "norm/value": 1 + STEPS / 1000}
    metrics = {name: np.tile(values, (SEEDS, 1)) for name, values in curves.items()}
    run = made_up(settings_of("as-released/figure4/cross-entropy-adam"), metrics=metrics)
    when, grown = trained.first_take_off(run)
    assert when == pytest.approx([300] * SEEDS)
    assert grown == pytest.approx([0.3] * SEEDS)
    never = replace(run, metrics={**run.metrics, "attention/words": 0 * run.metrics["attention/words"]})
    assert np.isnan(trained.first_take_off(never)[0]).all()
    # Distances from a threshold have the sign of their side.
    for side, sign in ((">", 1), ("<", -1)):
        assert trained.beyond(np.array([1.0, 3.0]), side, 2.0).values == pytest.approx((-0.5 * sign, 0.5 * sign))


# Experiments.


def test_topics_that_overlap_or_follow_zipf_are_distributions() -> None:
    zipf, overlap = experiments.zipf_topics(5, 4), experiments.overlapping_topics(5, 4, 0.3)
    for matrix in (zipf, overlap):
        assert matrix.sum(axis=1) == pytest.approx(np.ones(5))
    assert zipf[0, 0] / zipf[0, 3] == pytest.approx(4)
    assert overlap[0, -1] == pytest.approx(0.3 / 20)


def test_training_a_small_experiment_leads_to_a_verdict(tmp_path: Path) -> None:
    settings = experiments.settings(UNIFORM, "squared", "adam", steps=150, log_every=50, learning_rate=0.01, l2=MILD_L2)
    experiment = Experiment(name="small/squared-adam", settings=settings, most_seeds=2)
    run = experiment.restore(experiment.compute((0, 1), tmp_path))
    assert decide("figure2/blocks", {"small/squared-adam": run}) == "holds"
    # Control: the same run with words dealt out to topics in turn.
    mixed = replace(run, theory={**run.theory, "word_topics": MIXED})
    assert only(trained.blocks({"a": mixed}, centred=True)).value < 0.5
