"""Every claim on trained models is given results of models that were not trained: none may hold."""

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from support.fabricated import SEEDS, blocks, decide, experiments_of, fabricate, shuffled, untrained
from topicscope.paper import experiment as experiment_module
from topicscope.paper import registry, training
from topicscope.paper.claim import PRESETS, Claim
from topicscope.paper.experiment import Experiment, TextExperiment
from topicscope.paper.figure4 import Predictions
from topicscope.paper.probe_experiment import Probing
from topicscope.paper.setups import constant_losses, gain
from topicscope.settings import Masking
from topicscope.synthetic.topics import TopicModel

QUICK, PAPER = (
    # Those that also need a language model are broken with the tables' (test_tables1_5).
    {claim.id: claim for claim in registry(PRESETS[name]).claims if claim.needs == tuple(experiments_of(claim)) != ()}
    for name in ("quick", "paper")
)

# What an untrained model may pass, and why; each has a break of its own below.
PASSES_UNTRAINED = {
    # Two untrained models look alike; that trained ones have blocks at all is for other claims.
    "section8.1/two-stage/pattern",
    "section8.1/alternating/pattern",
    # That word queries are not trained at all is what these claim.
    "masking/all-masked/cross-entropy/attention",
    "masking/all-masked/squared/attention",
    # Uniform attention has ((v − 1)α + β)/v = 1, inside Theorem 3's interval: the theorem says no more than that.
    "table3/topic-sets/value-frozen/interval",
    "table3/topic-sets/value-trained/interval",
    # That W^E⊤W^E stays as it started, and has no blocks, is what these claim of the released code.
    "as-released/figure1/cross-entropy-sgd/start-kept",
    "as-released/figure1/cross-entropy-adam/no-blocks",
}


# Claims that need these are broken with made-up results of their own: test_tables1_5, test_figure5,
# test_figure4_predicted. Exact claims need nothing, and are broken in test_exact_claims.
BROKEN_ELSEWHERE = (Probing, TextExperiment, Predictions)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_claim_on_results_is_broken_here_or_with_results_of_its_own_kind(preset: str) -> None:
    here = {"quick": QUICK, "paper": PAPER}[preset]
    others = [claim for claim in registry(PRESETS[preset]).claims if claim.needs and claim.id not in here]
    assert [claim.id for claim in others if not any(isinstance(need, BROKEN_ELSEWHERE) for need in claim.needs)] == []
    assert {claim.id for claim in others if any(isinstance(need, TextExperiment) for need in claim.needs)} <= {
        *(f"figure5/adam-0.001/scale-0.005/{about}" for about in ("layer-1", "layer-2", "layer-3", "layer-4")),
        *("figure5/adam-0.001/scale-0.005/turning", "figure5/map"),
        *("emergence/embeddings-first", "emergence/lower-layers-first"),
    }


def decide_untrained(claim: Claim) -> str:
    """The first result is an untrained model's; one that it is compared with is at the Bayes floor."""
    first, *others = experiments_of(claim)
    return decide(claim, untrained(first), *(replace(untrained(each), held_out_loss=floor(each)) for each in others))


def floor(experiment: Experiment) -> np.ndarray:
    settings = experiment.settings
    # Theory knows nothing of START and END: the floor without them is low enough.
    data = replace(settings.data, ends=False)
    return np.full(SEEDS, gain(data, settings.masking, settings.training.loss).floor)


@pytest.fixture(autouse=True)
def few_documents(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Gradients at the start are held against a formula on these documents: a few will do to break it."""
    monkeypatch.setattr(experiment_module, "HELD_OUT_DOCUMENTS", 40)
    monkeypatch.setattr(experiment_module, "GRADIENT_DOCUMENTS", 20)
    training.gradient_bags.cache_clear()
    yield
    training.gradient_bags.cache_clear()


@pytest.mark.parametrize("claim", QUICK.values(), ids=QUICK)
def test_no_claim_on_training_holds_for_an_untrained_model(claim: Claim) -> None:
    assert (decide_untrained(claim) == "holds") == (claim.id in PASSES_UNTRAINED)


@pytest.mark.slow
@pytest.mark.parametrize("claim", PAPER.values(), ids=PAPER)
def test_no_claim_on_training_of_the_paper_preset_holds_for_an_untrained_model(claim: Claim) -> None:
    assert (decide_untrained(claim) == "holds") == (claim.id in PASSES_UNTRAINED)


ABOUT_TOPICS = {
    name: claim
    for name, claim in QUICK.items()
    # A word's own entry stays in its own topic however topics are shuffled, and clause 3 counts it.
    if name.endswith(("/blocks", "/value", "/embedding")) and not re.fullmatch("figure1/.*/embedding", name)
}


@pytest.mark.parametrize("claim", ABOUT_TOPICS.values(), ids=ABOUT_TOPICS)
def test_claims_about_topics_hold_for_blocks_and_not_with_shuffled_topics(claim: Claim) -> None:
    (experiment,) = experiments_of(claim)
    good = blocks(experiment)
    assert decide(claim, good) == "holds"
    assert decide(claim, shuffled(good)) != "holds"


ABOUT_ATTENTION = {
    name: claim for name, claim in QUICK.items() if name.endswith(("/attention", "/topic-average", "/other-words"))
}


@pytest.mark.parametrize("claim", ABOUT_ATTENTION.values(), ids=ABOUT_ATTENTION)
def test_claims_about_attention_turn_between_uniform_and_topical_attention(claim: Claim) -> None:
    (experiment,) = experiments_of(claim)
    topical = replace(untrained(experiment), attention=np.array([5.0, 3.0, 1.0, 1.0, 5.0]) * _jitter()[:, None])
    verdicts = {decide(claim, topical), decide(claim, untrained(experiment))}
    assert verdicts == {"holds", "fails"}


COMPARISONS = {
    name: claim
    for name, claim in QUICK.items()
    if name.startswith("section") and len(experiments_of(claim)) == 2 and not name.endswith("/pattern")
}


@pytest.mark.parametrize("claim", COMPARISONS.values(), ids=COMPARISONS)
def test_slightly_worse_means_a_tenth_of_the_gain_after_equal_steps(claim: Claim) -> None:
    part, whole = experiments_of(claim)
    assert part.settings.training.steps == whole.settings.training.steps
    unit = gain(whole.settings.data, Masking(), whole.settings.training.loss).value
    for share, verdict in ((0.05, "holds"), (0.2, "fails")):
        worse = replace(untrained(part), held_out_loss=floor(part) + share * unit * _jitter())
        assert decide(claim, worse, replace(untrained(whole), held_out_loss=floor(whole))) == verdict
    longer = replace(whole.settings.training, steps=2 * whole.settings.training.steps)
    unequal = replace(whole, settings=replace(whole.settings, training=longer))
    with pytest.raises(AssertionError, match="equal steps"):
        decide(claim, untrained(part), untrained(unequal))


@pytest.mark.parametrize("schedule", ["two-stage", "alternating"])
def test_a_pattern_is_lost_if_joint_training_has_a_diagonal_and_the_other_blocks(schedule: str) -> None:
    claim = QUICK[f"section8.1/{schedule}/pattern"]
    joint, staged = experiments_of(claim)
    diagonal = fabricate(joint, value=np.eye(101), noise=0.001)
    assert decide(claim, blocks(joint), blocks(staged)) == "holds"
    assert decide(claim, diagonal, blocks(staged)) == "fails"


def test_untrained_results_are_those_of_the_initial_weights() -> None:
    experiment = experiments_of(QUICK["figure1/squared-adam/blocks"])[0]
    start = untrained(experiment)
    assert start.weights["embedding"].std() == pytest.approx(0.02, rel=0.05)
    assert not np.allclose(start.weights["embedding"][0], start.weights["embedding"][1])
    constant = constant_losses(TopicModel.from_settings(experiment.settings.data))["squared"]
    np.testing.assert_allclose(start.held_out_loss, constant, rtol=0.01)


def _jitter() -> np.ndarray:
    return 1 + 0.001 * np.arange(SEEDS)
