import json
import os
import pickle
from pathlib import Path

import pytest
import torch

from support.tiny_models import save_tiny, save_tokenizer
from topicscope.errors import InputError
from topicscope.probing.models import HuggingFaceModel, Loading, check_architecture, find_model
from topicscope.text import hub


def load(folder: Path, *, allow_bin: bool = False) -> HuggingFaceModel:
    return HuggingFaceModel(find_model(str(folder), allow_bin=allow_bin), ([2], [3]), Loading(device="cpu", length=20))


def as_pickle(folder: Path) -> Path:
    from safetensors.torch import load_file

    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return folder


def test_pickled_weights_are_used_only_if_allowed(tmp_path: Path) -> None:
    folder = save_tiny("bert", tmp_path)
    safe = load(folder).embedding_matrix()
    as_pickle(folder)
    with pytest.raises(InputError, match="--allow-bin"):
        find_model(str(folder))
    assert (load(folder, allow_bin=True).embedding_matrix() == safe).all()


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


def test_a_pickle_that_would_run_code_is_refused_and_does_not_run(tmp_path: Path) -> None:
    folder = as_pickle(save_tiny("bert", tmp_path / "model"))
    trap = tmp_path / "sprung"
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"weights": Trap(trap)}))
    said = r"its \.bin weights hold something other than tensors: convert them"
    with pytest.raises(InputError, match=said) as caught:
        load(folder, allow_bin=True)
    assert "weights_only" not in str(caught.value)
    assert ". " not in str(caught.value)
    assert not trap.exists()
    # The control: unpickling it plainly does run it.
    pickle.loads((folder / "pytorch_model.bin").read_bytes())
    assert trap.exists()


def test_of_weights_that_cannot_be_read_the_first_sentence_alone_is_passed_on(tmp_path: Path) -> None:
    folder = as_pickle(save_tiny("bert", tmp_path))
    weights = folder / "pytorch_model.bin"
    weights.write_bytes(weights.read_bytes()[:2_000])
    # The control: there is more to pass on.
    with pytest.raises(RuntimeError, match=r"central directory\. This is"):
        torch.load(weights, weights_only=True)
    with pytest.raises(InputError, match=r"cannot be loaded \(.*central directory\): give another") as caught:
        load(folder, allow_bin=True)
    assert ". " not in str(caught.value)


def test_a_folder_without_weights_is_refused_but_serves_untrained(tmp_path: Path) -> None:
    folder = save_tiny("bert", tmp_path)
    (folder / "model.safetensors").unlink()
    # Pickled, but no weights.
    (folder / "training_args.bin").write_bytes(b"")
    for allow_bin in (False, True):
        with pytest.raises(InputError, match="has no weights") as caught:
            find_model(str(folder), allow_bin=allow_bin)
        assert "--allow-bin" not in str(caught.value)
    assert find_model(f"random:{folder}").untrained


@pytest.mark.parametrize(
    ("name", "revision", "said"),
    [
        (
            "no-such-organisation/no-such-model",
            "",
            "is not in the local cache and the hub cannot be reached: give minilm",
        ),
        ("no-such-organisation/no-such-model", "step1000", r"\(revision step1000\) is not in the local cache"),
        ("a/b/c", "", "neither a folder nor a possible name of the hub"),
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
        ('{"model_type": "perceptron9000"}', 'unknown architecture "perceptron9000"'),
        (
            '{"model_type": "mine", "auto_map": {"AutoModel": "code.Mine"}}',
            "brings code of its own, which is never run",
        ),
        ("[]", 'unknown architecture "None"'),
        ("{", "cannot be read"),
    ],
)
def test_unknown_architectures_and_foreign_code_are_refused(settings: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(settings)
    with pytest.raises(InputError, match=said):
        check_architecture(find_model(f"random:{tmp_path}"))


def test_a_digest_tells_models_apart_by_their_content(tmp_path: Path) -> None:
    first = save_tiny("bert", tmp_path / "first")
    second = save_tiny("bert", tmp_path / "second")
    other = save_tiny("bert", tmp_path / "other", seed=1)
    digests = [find_model(str(folder)).digest for folder in (first, second, other)]
    assert digests[0] == digests[1] != digests[2]
    untrained = [find_model(f"random:{folder}").digest for folder in (first, other)]
    assert untrained[0] == untrained[1] not in digests
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "hidden_act": "relu"}))
    assert find_model(f"random:{other}").digest != untrained[0]
