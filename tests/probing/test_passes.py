"""Sums over a shard of passages are those of loops, whatever the batches, the memory and the process."""

import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from jaxtyping import Int
from safetensors.numpy import load

from support.planted import words_of_one_token
from support.planted_model import PlantedModel, layer_means, planted_labelling
from support.tiny_models import VOCABULARY, save_tiny
from topicscope.errors import InputError
from topicscope.probing.models import HuggingFaceModel, Loading, Outputs, Subject, load_network
from topicscope.probing.passes import ModelVectors, Plan, Text, attention_sums
from topicscope.probing.sources import find_model
from topicscope.probing.statistics.attention import ShardSums
from topicscope.probing.statistics.labelling import Labelling, over_one_vocabulary
from topicscope.probing.statistics.pairs import PairTable

DRAW = np.random.default_rng(5)
PASSAGES = [DRAW.integers(5, VOCABULARY, size=size) for size in (9, 14, 3, 14, 20, 8)]
ARTICLES = [0, 0, 1, 1, 1, 2]


def some_labels() -> list[Labelling]:
    """A labelling with one topic per word, of some of the words, and one with several, of more of them."""
    few, many = np.arange(6, 40), np.arange(6, 58)
    one = np.arange(len(few))[:, None] % 3 == np.arange(3)
    several = np.random.default_rng(1).random((len(many), 5)) < 0.3
    several[~several.any(axis=1), 0] = True
    return [
        Labelling(one, tokens=few, fraction=0.1, assignment="one", seed=0),
        Labelling(several, tokens=many, fraction=0.2, seed=0),
    ]


def some_plan(labels: Sequence[Labelling], permutations: int = 1) -> Plan:
    labellings = over_one_vocabulary(labels)
    words = len(labellings[0].tokens)
    places = words_of_one_token(VOCABULARY).places(labellings[0].tokens)
    lengths = np.ones_like(places)
    return Plan(labellings, np.ones(words), PairTable.merged(words, []), permutations, 0, places, lengths)


def measure(
    subject: Subject,
    plan: Plan,
    passages: Sequence[np.ndarray] = PASSAGES,
    batch: int = 64,
    articles: list[int] = ARTICLES,
) -> ShardSums:
    texts = [Text(each, each, article) for each, article in zip(passages, articles, strict=True)]
    return attention_sums(subject, texts, plan=plan, batch=batch)


def by_hand(
    model: HuggingFaceModel, labels: Labelling, before: list[int], after: list[int], *, causal: bool, skip: int
) -> tuple[np.ndarray, np.ndarray]:
    """The obvious loop over passages, i, j, on Hugging Face's own output, one passage at a time."""
    from transformers import AutoModel

    network = AutoModel.from_pretrained(model.name, attn_implementation="eager").eval()
    sums, counts = np.zeros((2, 2, 2)), np.zeros(2)
    topics = dict(zip(labels.tokens.tolist(), labels.membership, strict=True))
    for passage in PASSAGES:
        with torch.no_grad():
            output = network(torch.tensor([[*before, *passage, *after]]), output_attentions=True)
        attention = torch.stack(output.attentions)[:, 0].numpy()[:, :, len(before) :, len(before) :]
        for query, second in enumerate(passage.tolist()):
            for key, first in enumerate(passage.tolist()):
                if first == second or min(query, key) < skip or (causal and key > query):
                    continue
                if first in topics and second in topics:
                    shared = (topics[first] & topics[second]).any()
                    kind = 0 if shared else 1
                    # A causal query sees so many keys; uniform attention is then 0.01 as well.
                    length = query + 1 if causal else len(passage)
                    sums[kind] += attention[:, :, query, key] * length / 100
                    counts[kind] += 1
    return sums, counts


@pytest.mark.parametrize(("kind", "special"), [("bert", True), ("albert", True), ("gpt2", False), ("gpt2", True)])
def test_sums_are_those_of_a_loop_over_all_pairs(kind: str, special: bool, tmp_path: Path) -> None:
    before, after = ([2], [3]) if special else ([], [])
    model = HuggingFaceModel(find_model(str(save_tiny(kind, tmp_path))), (before, after), Loading(device="cpu"))
    plan = some_plan(some_labels())
    found = measure(model, plan)
    for place, labels in enumerate(some_labels()):
        causal, skip = kind == "gpt2", int(kind == "gpt2" and not special)
        sums, counts = by_hand(model, labels, before, after, causal=causal, skip=skip)
        assert counts.min() > 0
        np.testing.assert_array_equal(found.counts[:, place].sum(axis=(0, 2)), counts)
        np.testing.assert_allclose(found.sums[:, place].sum(axis=(0, 2)), sums, rtol=1e-5)
        # The control: the other way of reading the mask gives other sums.
        other, _ = by_hand(model, labels, before, after, causal=not causal, skip=skip)
        assert np.abs(found.sums[:, place].sum(axis=(0, 2)) / other - 1).max() > 0.01
    np.testing.assert_array_equal(found.article, [0, 1, 2])


def test_a_decoders_sunk_attention_is_what_goes_to_its_first_token(tmp_path: Path) -> None:
    from transformers import AutoModel

    folder = save_tiny("gpt2", tmp_path)
    network = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    for before in ([], [2]):
        model = HuggingFaceModel(find_model(str(folder)), (before, []), Loading(device="cpu"))
        result = measure(model, some_plan(some_labels()))
        total, count = np.zeros((2, 2)), 0
        for passage in PASSAGES:
            with torch.no_grad():
                output = network(torch.tensor([[*before, *passage]]), output_attentions=True)
            first = torch.stack(output.attentions)[:, 0, :, 1:, 0].numpy()
            total += first.sum(axis=2)
            count += first.shape[2]
        assert result.queries == count
        np.testing.assert_allclose(result.sunk, total, rtol=1e-5)


def test_batches_and_their_order_change_nothing(tmp_path: Path) -> None:
    model = HuggingFaceModel(find_model(str(save_tiny("bert", tmp_path))), ([2], [3]), Loading(device="cpu"))
    plan = some_plan(some_labels(), permutations=7)
    together = measure(model, plan, batch=1_000)
    for batch in (1, 30, 41):
        apart = measure(model, plan, batch=batch)
        np.testing.assert_allclose(apart.sums, together.sums, rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(apart.counts, together.counts)
        np.testing.assert_allclose(apart.permuted_sums[1], together.permuted_sums[1], rtol=1e-5, atol=1e-7)
    backwards = measure(model, plan, PASSAGES[::-1], articles=ARTICLES[::-1])
    np.testing.assert_allclose(backwards.sums, together.sums, rtol=1e-5, atol=1e-7)
    other = measure(model, plan, PASSAGES[1:], articles=ARTICLES[1:])
    assert not np.allclose(other.sums, together.sums)


class Greedy(PlantedModel):
    """Has memory for so many tokens at once, and says as torch does when that is not enough."""

    error: Exception = torch.OutOfMemoryError("CUDA out of memory")

    def __init__(self, most: int) -> None:
        super().__init__(np.arange(VOCABULARY) % 4, weights=(3.0, 2.0, 1.0), common=1.0, topical=1.0)
        self.most, self.sizes = most, [0]

    def run(self, passages: Sequence[Int[np.ndarray, " _"]]) -> Outputs:
        self.sizes.append(len(passages) * max(map(len, passages)))
        if self.sizes[-1] > self.most:
            raise self.error
        return super().run(passages)


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_batches_halve_when_memory_runs_out_and_nothing_is_lost(error: Exception) -> None:
    plan = some_plan([planted_labelling(np.arange(VOCABULARY) % 4)])
    small, large = Greedy(most=25), Greedy(most=10_000)
    small.error = error
    np.testing.assert_array_equal(measure(small, plan, batch=1_000).sums, measure(large, plan, batch=1_000).sums)
    assert max(small.sizes) > 25 >= small.sizes[-1]
    assert len(large.sizes) == 2


def test_other_errors_are_not_taken_for_memory() -> None:
    model = Greedy(most=1)
    model.error = RuntimeError("the sizes do not match")
    with pytest.raises(RuntimeError, match="do not match"):
        measure(model, some_plan([planted_labelling(model.topic)]))
    with pytest.raises(InputError, match="memory ran out on a single passage of 3 tokens: lower --length"):
        measure(Greedy(most=1), some_plan([planted_labelling(model.topic)]))


def test_a_model_that_changes_before_a_worker_loads_it_is_refused(tmp_path: Path) -> None:
    def found() -> HuggingFaceModel:
        return HuggingFaceModel(find_model(str(tmp_path)), ([2], [3]), Loading(device="cpu"))

    save_tiny("bert", tmp_path)
    model = found()
    first, sent = model.embedding_matrix(), pickle.dumps(model)
    assert len(sent) < 10_000
    save_tiny("bert", tmp_path, seed=1)
    # As in another process, which has nothing loaded.
    load_network.cache_clear()
    with pytest.raises(InputError, match="was changed while it was probed: probe it again"):
        pickle.loads(sent).embedding_matrix()
    # The control: found anew, it is what it is now.
    changed = found()
    assert changed.key != model.key
    assert not np.array_equal(changed.embedding_matrix(), first)


def test_embeddings_are_those_of_words_and_each_layer_is_centred_on_its_mean_over_all_tokens(tmp_path: Path) -> None:
    model = HuggingFaceModel(find_model(str(save_tiny("bert", tmp_path))), ([2], [3]), Loading(device="cpu"))
    words = words_of_one_token(VOCABULARY)
    tokens, means = words.token_means(np.array([7, 9]))
    found = load(ModelVectors(model, tokens, means, tuple(PASSAGES[:4])).measure())
    np.testing.assert_array_equal(found["matrix"], model.embedding_matrix()[[7, 9]])
    np.testing.assert_array_equal(found["layer"], model.embedding_layer(np.array([7, 9])))
    np.testing.assert_allclose(found["centre"], layer_means(model, PASSAGES[:4]), rtol=1e-5, atol=1e-6)
    # The controls: other passages have another mean, and without passages there is none.
    assert np.abs(found["centre"] - layer_means(model, PASSAGES)).max() > 1e-3
    assert load(ModelVectors(model, tokens, means, ()).measure())["centre"].shape == (0, 0)
