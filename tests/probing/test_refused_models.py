"""Models that cannot be right are refused in one sentence; checkpoints with the same weights are told."""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from support.tiny_models import save_tiny, save_tokenizer
from topicscope.errors import InputError, collected, refuse_all
from topicscope.probing.models import HuggingFaceModel, Loading, check_architecture, load_network, model_tokenizer
from topicscope.probing.sources import find_model
from topicscope.probing.study import same_weights


def changed(folder: Path, **settings: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    return folder


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_type": ["bert"]}, r"unknown architecture \"\['bert'\]\""),
        ({"num_hidden_layers": 1_000_000}, "num_hidden_layers = 1000000 .* at most 10,000 layers"),
        ({"num_hidden_layers": float("inf")}, "num_hidden_layers = inf"),
    ],
)
def test_settings_that_no_model_has_are_refused(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = save_tiny("bert", tmp_path / "model")
    check_architecture(find_model(str(folder)))
    with pytest.raises(InputError, match=message):
        check_architecture(find_model(str(changed(folder, **settings))))


def test_settings_nested_too_deeply_are_refused(tmp_path: Path) -> None:
    folder = save_tiny("bert", tmp_path / "model")
    (folder / "config.json").write_text("[" * 100_000)
    with pytest.raises(InputError, match=r"config\.json that cannot be read"):
        check_architecture(find_model(str(folder)))


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    folder = save_tiny("bert", tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in weights if name.endswith("query.weight"))
    weights[name][0, 0] = torch.nan
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    source = find_model(str(folder))
    with pytest.raises(InputError, match=r"weights that are not finite numbers \(.*query\.weight\)"):
        load_network(source, source.digest, Loading(device="cpu"))


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(tmp_path: Path) -> None:
    folder = save_tiny("bert", tmp_path / "model")
    for words, fits in (
        ([f"w{'x' * place}" for place in range(55)], True),
        (["a" * place for place in range(1, 80)], False),
    ):
        save_tokenizer(folder, words)
        source = find_model(str(folder))
        tokenizer = model_tokenizer(source)
        model = HuggingFaceModel(source, tokenizer.special, Loading(device="cpu"))
        if fits:
            model.check_tokens(tokenizer)
        else:
            with pytest.raises(InputError, match="embeddings for 60 tokens, and its tokenizer numbers tokens up to 83"):
                model.check_tokens(tokenizer)


def test_checkpoints_with_the_same_weights_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save_tiny("bert", tmp_path / "run" / "one")
    # Settings may differ where weights do not.
    shutil.copytree(tmp_path / "run" / "one", tmp_path / "run" / "two")
    changed(tmp_path / "run" / "two", comment="later")
    save_tiny("bert", tmp_path / "run" / "three", seed=1)
    models = [
        HuggingFaceModel(find_model(str(tmp_path / "run"), revision=revision), ([2], [3]), Loading(device="cpu"))
        for revision in ("one", "two", "three")
    ]
    with caplog.at_level(logging.WARNING, logger="topicscope"):
        assert same_weights(models) == {models[1]: models[0].title}
    assert "two has the same weights as" in caplog.text


def test_all_problems_are_told_at_once_and_each_once() -> None:
    problems: list[InputError] = []
    refuse_all(problems)
    for sentence in ("The first.", "The second.", "The first."):
        with collected(problems):
            raise InputError(sentence)
    with pytest.raises(InputError, match=r"^2 things are wrong\. \(1\) The first\. \(2\) The second\.$"):
        refuse_all(problems)
    with pytest.raises(InputError, match=r"^The first\.$"):
        refuse_all(problems[:1])
