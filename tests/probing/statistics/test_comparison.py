"""Two models compared: the paired interval holds the truth, and the test keeps its size where neither has topics."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from support.planted import words_of_one_token
from support.planted_model import layer_means
from support.tiny_models import VOCABULARY, tiny_config
from topicscope.probing.models import HuggingFaceModel, Loading
from topicscope.probing.passes import Plan, attention_sums
from topicscope.probing.rows import COMPARED, EmbeddingTask, attention_summary, unpacked
from topicscope.probing.settings import MeasureSettings
from topicscope.probing.sources import find_model
from topicscope.probing.statistics.attention import AttentionTotals
from topicscope.probing.statistics.comparison import Comparable, compared, compared_models
from topicscope.probing.statistics.labelling import Labelling, TopicDraws
from topicscope.probing.statistics.pairs import count_pairs
from topicscope.probing.statistics.resampling import contrast
from topicscope.probing.statistics.similarity import averages_of, prepared, similarity_tests

WORDS, TOPICS, WIDTH = 80, 8, 16
LABELS = Labelling(np.arange(WORDS)[:, None] % TOPICS == np.arange(TOPICS))
DRAWS = TopicDraws.draw(LABELS, 100, generator=np.random.default_rng(0)).weights(LABELS)


def measured(vectors: np.ndarray, permutations: int = 99) -> Comparable:
    """Cosines of word vectors; the draws and the permutations are those of every other model."""
    ready = prepared(vectors, "cosine")
    products = ready @ ready.T
    [averages] = averages_of([ready], [products[LABELS.same_topic_pairs]], LABELS, DRAWS)
    stratum, draw = np.zeros(WORDS, dtype=np.int64), np.random.default_rng(1)
    no_auc = np.full_like(averages.same, np.nan)
    [test] = similarity_tests([products], LABELS, stratum, permutations, generator=draw)
    return Comparable(averages.same, averages.different, no_auc, np.append(test.observed, test.permuted))


def random_model(draw: np.random.Generator, topical: float = 0.0) -> np.ndarray:
    """Embeddings as they are initialised, and a part that words of one topic share."""
    own, shared = draw.normal(size=(WORDS, WIDTH)), draw.normal(size=(TOPICS, WIDTH))
    return own + topical * shared[np.arange(WORDS) % TOPICS] + 1.0


def test_a_model_with_more_topic_structure_is_told_from_one_with_less() -> None:
    draw = np.random.default_rng(5)
    more, less = measured(random_model(draw, 1.2)), measured(random_model(draw, 0.3))
    found = compared(more, less)
    assert found["p"] == pytest.approx(0.01)
    assert found["difference_low"] > 0
    assert found["low"] > 1
    expected = [contrast(each.same, each.different).ratio for each in (more, less)]
    assert None not in expected
    assert found["ratio_of_ratios"] == pytest.approx(expected[0] / expected[1])  # type: ignore[operator]
    # The other way round it is the other way round.
    turned = compared(less, more)
    assert turned["difference"] == pytest.approx(-found["difference"])
    assert turned["difference_high"] == pytest.approx(-found["difference_low"])
    assert turned["p"] == found["p"]


def test_ratios_are_compared_only_where_both_models_have_one() -> None:
    draw = np.random.default_rng(7)
    topical = measured(random_model(draw, 1.2))
    # Without the part that all words share, cosines of different topics are about 0, and their ratio may be anything.
    centred = measured(random_model(draw) - 1.0)
    assert contrast(centred.same, centred.different).ratio is None
    for found in (compared(topical, centred), compared(centred, topical)):
        assert (found["ratio_of_ratios"], found["low"], found["high"]) == (None, None, None)
        assert found["difference"] is not None
    assert compared(topical, topical)["ratio_of_ratios"] is not None


def test_a_model_does_not_differ_from_itself() -> None:
    one = measured(random_model(np.random.default_rng(6), 1.0))
    found = compared(one, one)
    assert found["p"] == 1
    assert found["difference"] == 0
    assert found["ratio_of_ratios"] == pytest.approx(1)


@pytest.mark.parametrize("trials", [150, pytest.param(1_000, marks=pytest.mark.slow)])
def test_two_independent_untrained_models_are_told_apart_in_five_per_cent_of_the_cases(trials: int) -> None:
    draw = np.random.default_rng(8)
    p = [compared(measured(random_model(draw)), measured(random_model(draw)))["p"] for _ in range(trials)]
    rejected, error = float(np.mean(np.array(p) <= 0.05)), np.sqrt(0.05 * 0.95 / trials)
    assert abs(rejected - 0.05) < 3 * error
    # The control: a trained one is told from an untrained one nearly always.
    p = [compared(measured(random_model(draw, 0.8)), measured(random_model(draw)))["p"] for _ in range(20)]
    assert np.mean(np.array(p) <= 0.05) > 0.9


class Initialised:
    """Tiny BERTs as transformers initialises them, all measured on the same passages: of any topics, or of two each."""

    def __init__(self, folder: Path, permutations: int, *, two_topics: bool) -> None:
        self.folder, self.groups = folder, [(0.1, "one")]
        self.measures = MeasureSettings(replicates=2, permutations=permutations, head_permutations=permutations)
        tiny_config("bert", num_hidden_layers=1).save_pretrained(folder)
        # The first six tokens are special, or have no topic; the first of all is padding, and its embedding 0.
        topic = np.where(np.arange(VOCABULARY) < 6, -1, np.arange(VOCABULARY) % 6)
        labels = Labelling(topic[:, None] == np.arange(6), fraction=0.1, assignment="one")
        draw = np.random.default_rng(1)
        chosen = [draw.choice(6, 2 if two_topics else 6, replace=False) for _ in range(24)]
        pools = [np.flatnonzero(np.isin(topic, each)) for each in chosen]
        self.passages = [draw.choice(pool, size=24) for pool in pools]
        tokens, offsets = np.concatenate(self.passages), np.arange(len(pools) + 1) * 24
        places = words_of_one_token(VOCABULARY).places(np.arange(VOCABULARY))
        frequency = np.bincount(tokens, minlength=VOCABULARY).astype(np.float64)
        pairs = count_pairs(tokens, offsets, VOCABULARY)
        self.plan = Plan((labels,), frequency, pairs, permutations, 0, places, np.ones_like(places))
        self.plan_file = folder / "plan.safetensors"
        self.plan_file.write_bytes(self.plan.to_bytes())

    def measured(self, seed: int, topical: float = 0.0) -> dict[str, np.ndarray]:
        """What the model of a seed is compared by; ``topical``: a part that its embeddings have by topic."""
        source = find_model(f"random:{self.folder}")
        model = HuggingFaceModel(source, ([2], [3]), Loading("cpu", seed=seed, length=26))
        matrix = model.embedding_matrix()
        shared = np.random.default_rng(seed).normal(0.0, topical * 0.02, size=(6, matrix.shape[1]))
        matrix = matrix + (self.plan.labellings[0].membership @ shared).astype(np.float32)
        vectors = self.folder / "vectors.safetensors"
        save_file({"matrix": matrix, "layer": matrix}, vectors)
        task = EmbeddingTask(vectors, self.plan_file, (0,), self.measures, by_topic=False)
        (self.folder / "embeddings").write_bytes(task.measure())
        _, found = unpacked(self.folder / "embeddings")
        centre = layer_means(model, self.passages[:8])
        each, articles = self.passages, list(range(len(self.passages)))
        hidden = [True] * len(each)
        shard = attention_sums(model, each, each, articles, plan=self.plan, batch=1_024, hidden=hidden, centre=centre)
        totals = AttentionTotals([shard], self.measures.replicates, 0)
        [group] = attention_summary(totals, self.plan, self.measures, by_topic=False)["groups"]
        return {f"0/{name}": array for name, array in (found | group[COMPARED]).items()}

    def p_values(self, one: int, other: int, topical: float = 0.0) -> dict[str, float]:
        """Of the models of two seeds, by measure and layer."""
        rows = compared_models(self.measured(one, topical), self.measured(other), self.groups)
        return {f"{row['measure']} {row['layer']}": row["p"] for row in rows}


MEASURED_P = ("attention None", "cosine matrix None", "hidden centred_cosine 1")


@pytest.mark.parametrize(
    ("pairs", "permutations", "two_topics"),
    [
        (4, 39, False),
        pytest.param(200, 99, False, marks=pytest.mark.slow),
        pytest.param(200, 99, True, marks=pytest.mark.slow),
    ],
)
def test_two_random_initialisations_of_one_architecture_are_told_apart_in_five_per_cent_of_the_cases(
    pairs: int, permutations: int, two_topics: bool, tmp_path: Path
) -> None:
    models = Initialised(tmp_path, permutations, two_topics=two_topics)
    p = [models.p_values(2 * pair, 2 * pair + 1) for pair in range(pairs)]
    # Multiples of 1/(permutations + 1), of which 0.05 is one: exactly 5 % where words could exchange their topics.
    rejected = {name: float(np.mean([each[name] <= 0.05 + 1e-9 for each in p])) for name in MEASURED_P}
    error = np.sqrt(0.05 * 0.95 / pairs)
    assert all(share - 0.05 < 3 * error for share in rejected.values()), rejected
    # Where passages have two topics each, half of their pairs are of one topic, and a sixth if topics are permuted:
    # attention's ratio then varies less than those it is compared with, and too few models are told apart.
    exact = [name for name in MEASURED_P if not two_topics or name != "attention None"]
    assert all(0.05 - rejected[name] < 3 * error for name in exact), rejected
    # The control: embeddings with a part by topic are told from untrained ones.
    assert models.p_values(1_000_001, 1_000_002, topical=1.5)["cosine matrix None"] <= 0.05
