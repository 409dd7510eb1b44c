"""Where models are found, how they are loaded, and that what they give is what transformers gives."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support.tiny_models import DECODERS, ENCODERS, VOCABULARY, save_tiny, save_tokenizer
from topicscope.errors import InputError
from topicscope.precision import usable_precision
from topicscope.probing.models import HuggingFaceModel, Loading, model_tokenizer
from topicscope.probing.sources import find_model
from topicscope.text import hub

BEFORE, AFTER = [2], [3]
LENGTHS = (7, 1, 12, 5)
PASSAGES = [np.random.default_rng(length).integers(5, VOCABULARY, size=length) for length in LENGTHS]
Build = Callable[..., HuggingFaceModel]


def loaded(source: Path | str, special: bool = True, **loading: Any) -> HuggingFaceModel:
    around = (BEFORE, AFTER) if special else ([], [])
    return HuggingFaceModel(find_model(str(source)), around, Loading(**{"device": "cpu", "length": 30, **loading}))


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    folders: dict[str, Path] = {}

    def make(kind: str, *, untrained: bool = False, **loading: Any) -> HuggingFaceModel:
        if kind not in folders:
            folders[kind] = save_tiny(kind, tmp_path_factory.mktemp(kind))
        return loaded(("random:" if untrained else "") + str(folders[kind]), **loading)

    return make


@pytest.mark.parametrize("kind", [*ENCODERS, *DECODERS])
def test_attention_and_embeddings_are_hugging_faces_own_whatever_the_padding(kind: str, build: Build) -> None:
    from transformers import AutoModel

    model = build(kind)
    found = torch.stack(model.run(PASSAGES).attention).numpy()
    assert found.shape == (2, 4, 2, 12, 12)
    assert (model.layers, model.heads, model.causal) == (2, 2, kind in DECODERS)
    network = AutoModel.from_pretrained(model.name, attn_implementation="eager").eval()

    def own(tokens: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Attention and the embedding layer for one sequence, by the whole model and without padding."""
        with torch.no_grad():
            output = network(torch.tensor([tokens]), output_attentions=True, output_hidden_states=True)
        of_encoder = "encoder_" if network.config.is_encoder_decoder else ""
        attentions = torch.stack(getattr(output, f"{of_encoder}attentions"))[:, 0]
        return attentions.numpy(), getattr(output, f"{of_encoder}hidden_states")[0][0].numpy()

    for place, passage in enumerate(PASSAGES):
        expected, _ = own([*BEFORE, *passage, *AFTER])
        inside = slice(0, len(passage))
        np.testing.assert_allclose(found[:, place, :, inside, inside], expected[:, :, 1:-1, 1:-1], rtol=0, atol=1e-6)
        if len(passage) > 1:
            # The control: the same matrix a position further is another one.
            assert np.abs(found[:, place, :, inside, inside] - expected[:, :, 2:, 2:]).max() > 1e-3
    matrix, words = model.embedding_matrix(), np.array([7, 30, 59, 5])
    np.testing.assert_array_equal(matrix, network.get_input_embeddings().weight.detach().numpy())
    layer = model.embedding_layer(words)
    np.testing.assert_allclose(layer, np.stack([own([int(word)])[1][0] for word in words]), rtol=0, atol=1e-6)
    at_position_1 = np.stack([own([2, int(word)])[1][1] for word in words])
    # The others turn queries and keys by position instead.
    assert (np.abs(layer - at_position_1).max() > 1e-3) == (kind not in ("modernbert", "gpt_neox", "llama"))
    # Factorised embeddings are narrower than the layers that they feed.
    assert (matrix.shape[1], layer.shape) == (8 if kind in ("albert", "electra") else 16, (4, 16))


def test_an_untrained_model_has_the_architecture_but_other_weights_fixed_by_the_seed(build: Build) -> None:
    trained, untrained = build("bert"), build("bert", untrained=True)
    assert untrained.name.startswith("random:")
    assert (untrained.layers, untrained.heads, untrained.length) == (trained.layers, trained.heads, trained.length)
    matrix = untrained.embedding_matrix()
    assert not np.allclose(matrix, trained.embedding_matrix())
    state = torch.random.get_rng_state()
    np.testing.assert_array_equal(matrix, build("bert", untrained=True).embedding_matrix())
    assert torch.equal(state, torch.random.get_rng_state())
    assert not np.allclose(matrix, build("bert", untrained=True, seed=1).embedding_matrix())


@pytest.mark.parametrize(("kind", "most"), [("bert", 40), ("roberta", 38), ("gpt2", 40), ("bart", 40)])
def test_the_longest_passage_is_what_the_model_takes(kind: str, most: int, build: Build) -> None:
    assert build(kind, length=1_000).length == most - 2
    assert build(kind, length=11).length == 9
    model = build(kind, length=1_000)
    model.run([np.full(model.length, 9)])
    with pytest.raises((IndexError, RuntimeError)):
        model.run([np.full(model.length + 1, 9)])


def test_half_precision_is_near_full_precision(build: Build) -> None:
    # Where the processor cannot run it, as the command does.
    dtype = usable_precision("bfloat16", "cpu")
    full, half = (build("bert", dtype=each).run(PASSAGES[:1]).attention[-1] for each in ("float32", dtype))
    assert half.dtype == torch.float32
    assert (0 < (full - half).abs().max() < 0.2) or dtype == "float32"
    assert build("bert", dtype="float64").run(PASSAGES).attention[0].dtype == torch.float64


@pytest.mark.parametrize("kind", ["fnet", "mamba", "longformer"])
def test_models_without_attention_between_all_positions_are_refused(kind: str, tmp_path: Path) -> None:
    from transformers import AutoConfig

    sizes = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 24}
    more = {"longformer": {"num_attention_heads": 2, "attention_window": 4, "max_position_embeddings": 40}}
    AutoConfig.for_model(kind, **sizes, **more.get(kind, {})).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="returned no attention between all positions even with attn_implementation"):
        loaded(f"random:{tmp_path}", special=False, length=9)


@pytest.mark.parametrize("error", [NotImplementedError("no tokens here"), TypeError("pixel_values is missing")])
def test_a_model_that_does_not_run_on_tokens_is_refused_in_one_sentence(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    folder = save_tiny("bert", tmp_path)
    monkeypatch.setattr("topicscope.probing.models._run", fail)
    with pytest.raises(InputError, match=f"does not run on tokens of text .{error}.: give"):
        loaded(folder)
    # Memory is another matter: fewer tokens at once may do.
    error = torch.OutOfMemoryError("out of memory")
    with pytest.raises(torch.OutOfMemoryError):
        loaded(folder)


def test_files_with_weights_that_are_missing_no_numbers_or_cut_short_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = save_tiny("bert", tmp_path)
    path = folder / "model.safetensors"
    weights = load_file(path)

    def save(some: dict[str, torch.Tensor]) -> None:
        save_file(some, path, metadata={"format": "pt"})

    without_pooler = {name: value for name, value in weights.items() if "pooler" not in name}
    save(without_pooler)
    assert loaded(folder).layers == 2
    save({name: value for name, value in without_pooler.items() if "layer.1" not in name})
    with pytest.raises(InputError, match=r"lacks \d+ of its weights"):
        loaded(folder)
    name = next(name for name in weights if name.endswith("query.weight"))
    save(weights | {name: torch.full_like(weights[name], torch.nan)})
    with pytest.raises(InputError, match=r"weights that are not finite numbers \(.*query\.weight\)"):
        loaded(folder)
    path.write_bytes(path.read_bytes()[:2_000])
    with pytest.raises(InputError, match=r"cannot be loaded \(.*\): give another") as caught:
        loaded(folder)
    assert ". " not in str(caught.value)


def test_a_device_that_is_not_there_is_refused(build: Build) -> None:
    missing = "cuda" if not torch.cuda.is_available() else "mps"
    with pytest.raises(InputError, match=f"--device {missing} is not available here: give cpu, or auto"):
        build("bert", device=missing)


def test_the_digest_is_that_of_every_byte_of_the_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(bytes(1_000_000))
    before = find_model(str(tmp_path)).digest
    assert find_model(str(tmp_path)).digest == before
    content = bytearray(1_000_000)
    content[10_000] = 1
    weights.write_bytes(content)
    assert find_model(str(tmp_path)).digest != before


class Trap:
    """Runs code when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_pickled_weights_are_never_read_and_a_folder_without_others_serves_untrained(tmp_path: Path) -> None:
    folder, trap = save_tiny("bert", tmp_path / "model"), tmp_path / "sprung"
    (folder / "model.safetensors").unlink()
    for there in (False, True):
        if there:
            (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"weights": Trap(trap)}))
        with pytest.raises(InputError, match=r"has no \.safetensors weights, and pickled ones could run code: save it"):
            find_model(str(folder))
        loaded(f"random:{folder}")
    assert not trap.exists()
    # The control: unpickling it does run code.
    pickle.loads((folder / "pytorch_model.bin").read_bytes())
    assert trap.exists()


@pytest.mark.parametrize(
    ("name", "revision", "said"),
    [
        (
            "no-such-organisation/no-such-model",
            "step1000",
            "is not at revision step1000 in the local cache, and the hub",
        ),
        ("a/b/c", "", "neither a folder nor a possible name on the hub"),
        ("random:", "", "has no name after the colon"),
        ("minilm", "step1000", "--revision step1000 is of no use for minilm"),
    ],
)
def test_names_that_lead_nowhere_are_refused(
    name: str, revision: str, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(hub, "reachable", lambda: False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(InputError, match=said):
        find_model(name, revision=revision)


def test_checkpoints_within_a_folder_are_its_revisions(tmp_path: Path) -> None:
    for seed, name in enumerate(("checkpoint-1", "checkpoint-20")):
        save_tiny("bert", tmp_path / name, seed=seed)
    save_tokenizer(tmp_path, ["frog", "toad"])
    save_tokenizer(tmp_path / "checkpoint-20", ["frog", "toad", "newt"])
    first, last = (find_model(str(tmp_path), revision=name) for name in ("checkpoint-1", "checkpoint-20"))
    assert (first.folder, last.folder) == (tmp_path / "checkpoint-1", tmp_path / "checkpoint-20")
    assert first.digest != last.digest
    assert (first.tokenizer_folder, last.tokenizer_folder) == (tmp_path, last.folder)
    with pytest.raises(InputError, match="--revision checkpoint-3 is no folder in"):
        find_model(str(tmp_path), revision="checkpoint-3")


def test_a_file_and_a_folder_without_settings_are_refused(tmp_path: Path) -> None:
    (tmp_path / "weights").write_text("")
    with pytest.raises(InputError, match="is a file: give the folder"):
        find_model(str(tmp_path / "weights"))
    with pytest.raises(InputError, match=r"has no config\.json"):
        find_model(str(tmp_path))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ('{"model_type": "perceptron9000"}', "perceptron9000"),
        ('{"model_type": ["bert"]}', "cannot be loaded"),
        (
            '{"model_type": "mine", "auto_map": {"AutoModel": "code.Mine", "AutoConfig": "code.Settings"}}',
            "custom code",
        ),
        ("[]", "cannot be loaded"),
        ("{", "cannot be loaded"),
        ("[" * 100_000, "cannot be loaded"),
    ],
)
def test_architectures_that_no_model_has_and_foreign_code_are_refused(
    settings: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(settings)
    (tmp_path / "code.py").write_text("raise SystemExit('run')")
    with pytest.raises(InputError, match=said):
        loaded(f"random:{tmp_path}")
    # Nobody is asked whether the code may run.
    assert capsys.readouterr().out == ""


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(tmp_path: Path) -> None:
    folder = save_tiny("bert", tmp_path / "model")
    for words, fits in ([f"w{'x' * place}" for place in range(55)], True), (["a" * at for at in range(1, 80)], False):
        save_tokenizer(folder, words)
        tokenizer, model = model_tokenizer(find_model(str(folder))), loaded(folder)
        if fits:
            model.check_tokens(tokenizer)
        else:
            with pytest.raises(InputError, match="embeddings for 60 tokens, and its tokenizer numbers tokens up to 83"):
                model.check_tokens(tokenizer)
