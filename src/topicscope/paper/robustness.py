"""§2.3, §3.2: the main conclusions under other documents and other masks.

Documents differ in one thing from the paper's, or break the theory's disjoint topics. Masks have no kept or random
words, or are hidden as keys, as in the released code.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from topicscope.paper import figure10, table3
from topicscope.paper.claim import Claim, Drawing, Drawn, Kind, Preset, Results, above, claim_on, near
from topicscope.paper.experiment import Experiment
from topicscope.paper.figure1 import contrast
from topicscope.paper.figure2 import centred_contrast, value_claim
from topicscope.paper.setups import (
    ALL_PARTS,
    FEW_SEEDS,
    LDA,
    LOSS_WORDS,
    MORE_ATTENTION,
    ONE_HOT,
    TOPIC_SETS,
    UNIFORM_ATTENTION,
    set_up,
)
from topicscope.paper.table3 import attention_claims, same_topic_ratio, topic_average
from topicscope.settings import Data, Masking, Model
from topicscope.settings.training import Loss
from topicscope.synthetic.topics import equal_topics

# As many steps as Figure 10's runs on the paper's documents, with which they are compared.
STEPS = figure10.STEPS
# Documents that differ from the paper's in one thing: T and v (at equal Tv), Dirichlet α, length N.
DOCUMENTS: dict[str, tuple[str, Data]] = {
    "many-topics": ("T = 20, v = 5", replace(LDA, topics=20, words=5)),
    "few-topics": ("T = 5, v = 20", replace(LDA, topics=5, words=20)),
    "dirichlet-0.03": ("α = 0.03", replace(LDA, dirichlet=(0.03,))),
    "dirichlet-0.5": ("α = 0.5", replace(LDA, dirichlet=(0.5,))),
    "short": ("N from 30 to 50", replace(LDA, length=(30, 50))),
    "long": ("N from 250 to 300", replace(LDA, length=(250, 300))),
}
MORE_DOCUMENTS: dict[str, tuple[str, Data]] = {
    "more-topics": ("T = 20, v = 10", replace(LDA, topics=20)),
    "more-words": ("T = 10, v = 20", replace(LDA, words=20)),
    "dirichlet-1": ("α = 1", replace(LDA, dirichlet=(1.0,))),
    "shorter": ("N from 10 to 20", replace(LDA, length=(10, 20))),
}
LOSSES: tuple[Loss, ...] = ("squared", "cross_entropy")
# Shares of topics' probability that are common to all.
OVERLAPS = (0.1, 0.3, 0.6)
MORE_OVERLAPS = (0.2, 0.4, 0.5, 0.7, 0.8)
# Masks in words, the settings that they change, and the losses in the order of the claims.
MASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "all-masked": ("p_c = p_r = 0", {"masking": Masking(keep=0.0, random=0.0)}),
    "hidden-keys": ("masked keys hidden", {"model": replace(ONE_HOT, masked_keys="hidden")}),
}
MASK_LOSSES: tuple[Loss, ...] = ("cross_entropy", "squared")
# How near to 1 attention's ratio must be to count as uniform.
UNIFORM_WITHIN = 0.05


def zipf_topics(topics: int, words: int) -> Float[np.ndarray, "topic word"]:
    """Disjoint topics whose r-th word has a probability proportional to 1/r."""
    weights = 1 / np.arange(1, words + 1)
    return np.kron(np.eye(topics), weights / weights.sum())


def overlapping_topics(topics: int, words: int, degree: float) -> Float[np.ndarray, "topic word"]:
    """Topics that give a share ``degree`` of their probability to all words alike, whatever their topic.

    0 is the paper's model; at 1 all topics are the same. A word's topic is the one that makes it likeliest.
    """
    return (1 - degree) * equal_topics(topics, words) + degree / (topics * words)


# Documents in words, their settings, and their topics if the settings do not describe them.
Documents = tuple[str, Data, Float[np.ndarray, "topic word"] | None]
UNEQUAL_WORDS: Documents = ("word probabilities as 1/rank", LDA, zipf_topics(LDA.topics, LDA.words))


def experiments(preset: Preset) -> dict[str, tuple[str, Experiment]]:
    """One-hot models with attention trained, on each kind of documents, by name and in words."""
    kinds: dict[str, Documents] = {
        name: (words, data, None)
        for name, (words, data) in (DOCUMENTS | (MORE_DOCUMENTS if preset.full else {})).items()
    }
    kinds["unequal-words"] = UNEQUAL_WORDS
    for degree in sorted(OVERLAPS + (MORE_OVERLAPS if preset.full else ())):
        kinds[f"overlap-{degree:g}"] = _overlapping(degree)
    found = {
        f"{name}{_tail(loss)}": (kind[0], _experiment(preset, f"{name}{_tail(loss)}", ONE_HOT, loss, kind))
        for loss in LOSSES
        for name, kind in kinds.items()
    }
    # Already trained for Table 3.
    found["topic-sets"] = ("documents of τ = 2 topics", table3.topic_sets(preset, value_trained=True))
    return found


def embedding_experiments(preset: Preset) -> dict[str, tuple[str, Experiment]]:
    """All parts trained, on documents that break an assumption of §3.1."""
    kinds: dict[str, Documents] = {
        "topic-sets": ("documents of τ = 2 topics", TOPIC_SETS, None),
        "unequal-words": UNEQUAL_WORDS,
        "overlap-0.3": _overlapping(0.3),
    }
    return {
        name: (kind[0], _experiment(preset, f"embedding/{name}", ALL_PARTS, "cross_entropy", kind))
        for name, kind in kinds.items()
    }


def _overlapping(degree: float) -> Documents:
    return f"topics overlapping by {degree:g}", LDA, overlapping_topics(LDA.topics, LDA.words, degree)


def _experiment(preset: Preset, name: str, model: Model, loss: Loss, kind: Documents) -> Experiment:
    _, data, matrix = kind
    topics = () if matrix is None else tuple(map(tuple, matrix.tolist()))
    more: dict[str, Any] = {"data": data, "topic_words": topics, "most_seeds": FEW_SEEDS}
    return set_up(f"robustness/{name}", preset, model, loss, "adam", STEPS, **more)


def claims(preset: Preset) -> tuple[Claim, ...]:
    """W^V's blocks and same-topic attention for each; W^E⊤W^E's contrast for some."""
    found: list[Claim] = []
    for name, (words, experiment) in experiments(preset).items():
        value = value_claim(
            experiment, f"robustness/{name}", f"With {words}, the trained", source="§2.3", figure="robustness"
        )
        attention, ours = attention_claims(
            experiment, f"robustness/{name}", source="§2.3", figure="robustness", words=f"with {words}"
        )
        kind = _kind(name)
        found += [replace(value, kind=kind), replace(attention, kind=kind), ours]
    for name, (words, experiment) in embedding_experiments(preset).items():
        found.append(
            claim_on(
                experiment,
                partial(contrast, "embedding"),
                id=f"robustness/{name}/embedding",
                source="§2.3",
                statement=f"With {words} and all parts trained, W^E⊤W^E is larger between words of one topic than of "
                "two.",
                rule=above(0.0),
                figure="robustness-embedding",
                kind=_kind(name),
            )
        )
    return tuple(found)


def _kind(name: str) -> Kind:
    """Whose a claim is: documents of τ topics are the paper's (§3.1), the others another corpus, of our choice."""
    return "paper" if name == "topic-sets" else "elsewhere"


def drawings(preset: Preset) -> tuple[Drawing, ...]:
    """The two numbers of every kind of documents, side by side."""
    usual = {f"paper{_tail(loss)}": ("the paper's", figure10.joint(preset, loss, "adam")) for loss in LOSSES}
    chosen, embeddings = (usual | experiments(preset)).values(), embedding_experiments(preset).values()

    def draw(trained: Results) -> Drawn:
        from topicscope.reporting.figures.training import seed_points

        runs = {f"{words} ({_short(experiment)})": trained[experiment.name] for words, experiment in chosen}
        return seed_points(
            {
                "contrast of W^V\n(same minus different topic)": (
                    {words: np.array(centred_contrast(run).values) for words, run in runs.items()},
                    0.0,
                ),
                "attention, ((v − 1)α̂ + β̂)/v": (
                    {words: np.array(topic_average(run).values) for words, run in runs.items()},
                    float(MORE_ATTENTION.low),
                ),
            },
            title="§2.3: the main conclusions under other documents",
        )

    def draw_embeddings(trained: Results) -> Drawn:
        from topicscope.reporting.figures.training import heat_maps

        panels = {words: trained[experiment.name].embedding_products[0] for words, experiment in embeddings}
        title = "§2.3: W^E⊤W^E with all parts trained, other documents (cross-entropy, Adam)"
        return heat_maps(panels, words=10, columns=3, title=title)

    return (
        Drawing(name="robustness", needs=tuple(each for _, each in chosen), draw=draw),
        Drawing(name="robustness-embedding", needs=tuple(each for _, each in embeddings), draw=draw_embeddings),
    )


def _tail(loss: Loss) -> str:
    return "" if loss == "squared" else "/cross-entropy"


def _short(experiment: Experiment) -> str:
    return "squared" if experiment.settings.training.loss == "squared" else "cross-entropy"


def masked(preset: Preset, name: str, loss: Loss) -> Experiment:
    """A one-hot model with attention trained under other masks: p_c = p_r = 0, or masked positions hidden as keys."""
    changes: dict[str, Any] = {"model": ONE_HOT, "most_seeds": FEW_SEEDS} | MASKS[name][1]
    return set_up(
        f"masking/{name}/{loss.replace('_', '-')}", preset, loss=loss, optimizer="adam", how_long=STEPS, **changes
    )


def mask_claims(preset: Preset) -> tuple[Claim, ...]:
    """W^V and attention under both changes."""
    found = []
    for loss in MASK_LOSSES:
        for name, (words, _) in MASKS.items():
            experiment, setting = masked(preset, name, loss), f"With {words} ({LOSS_WORDS[loss]})"
            blind = name == "all-masked"
            found += [
                value_claim(
                    experiment, experiment.name, f"{setting}, the trained", source="§3.2", figure="masking", kind="ours"
                ),
                claim_on(
                    experiment,
                    same_topic_ratio,
                    id=f"{experiment.name}/attention",
                    source="§3.2",
                    statement=f"{setting} attention between words stays blind to topics: word queries are never "
                    "predicted at, so nothing trains them."
                    if blind
                    else f"{setting} words attend more to other words of their topic than to words of other topics.",
                    expected=1.0 if blind else None,
                    unit="ratio of average attention",
                    rule=near(1.0, UNIFORM_WITHIN) if blind else MORE_ATTENTION,
                    figure="masking",
                    # Nothing trains word queries then, whatever the loss.
                    kind="check" if blind else "ours",
                ),
            ]
    return tuple(found)


def mask_drawings(preset: Preset) -> tuple[Drawing, ...]:
    """Attention by class under both changes, beside the paper's masking."""
    chosen = {}
    for loss in MASK_LOSSES:
        chosen[f"the paper's masking\n{LOSS_WORDS[loss]}"] = figure10.joint(preset, loss, "adam")
        for name, (words, _) in MASKS.items():
            chosen[f"{words}\n{LOSS_WORDS[loss]}"] = masked(preset, name, loss)

    def draw(trained: Results) -> Drawn:
        from topicscope.reporting.figures.training import attention_bars

        rows = {words: trained[experiment.name].attention[:, :3] for words, experiment in chosen.items()}
        title = "Masking: average attention of word queries, W^V trained too (Adam)"
        return attention_bars(rows, uniform=UNIFORM_ATTENTION, title=title)

    return (Drawing(name="masking", needs=tuple(chosen.values()), draw=draw),)
