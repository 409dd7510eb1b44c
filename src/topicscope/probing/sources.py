"""Where the files of a model are, and what identifies them: found before anything heavy is loaded.

A model is a name on the Hugging Face hub, a folder, or the packaged default; its files are in one folder.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from topicscope.errors import InputError
from topicscope.files import expanded
from topicscope.text import hub
from topicscope.text.tokenizers import MINILM, UNTRAINED, model_source

INSTALL = 'pip install "topicscope[language]"'
# What is fetched from a repository: settings, vocabularies, and weights of one kind.
FILES = ("*.json", "*.txt", "*.model")
TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "vocab.*", "*.model")
SAFE_WEIGHTS, PICKLED_WEIGHTS = "*.safetensors", "*.bin"
# As transformers names them: other files, such as training_args.bin, are pickles too.
PICKLED_MODEL = "pytorch_model*.bin"


@dataclass(frozen=True)
class Source:
    """One model to be probed, and where its files are."""

    name: str
    """As the user gave it: ``minilm``, ``random:minilm``, a folder, ``google-bert/bert-base-uncased``."""

    revision: str
    """A checkpoint: a branch, tag or commit on the hub, or a folder within a local one; empty for the newest."""

    folder: Path

    untrained: bool
    """Whether it is the same architecture with freshly drawn weights."""

    pickled: bool = False
    """Whether weights are read from ``.bin``, because there are no safetensors and the user allowed it."""

    @property
    def tokenizer_folder(self) -> Path:
        """Where its tokenizer is: a checkpoint within a folder may use the folder's."""
        above = self.folder.parent
        return above if self.revision and not has_tokenizer(self.folder) and has_tokenizer(above) else self.folder

    @cached_property
    def digest(self) -> str:
        """Identifies the model's content as it was when first asked for; it is passed on to other processes."""
        return model_digest(self)

    @cached_property
    def weights(self) -> str:
        """Identifies the weights alone: checkpoints of one model may have the same weights and different settings."""
        return model_digest(self, (SAFE_WEIGHTS, PICKLED_WEIGHTS))


def model_digest(source: Source, patterns: Sequence[str] = ("config.json", SAFE_WEIGHTS, PICKLED_WEIGHTS)) -> str:
    """Identifies the current content of a model's folder: its settings and, if trained, its weights."""
    found = hashlib.sha256(b"untrained" if source.untrained else b"trained")
    if source.untrained:
        patterns = ("config.json",)
    for path in sorted({path for pattern in patterns for path in source.folder.glob(pattern)}):
        found.update(f"{path.name} {path.stat().st_size}".encode())
        with path.open("rb") as file:
            found.update(hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest()[:20]


def find_model(name: str, *, revision: str = "", allow_bin: bool = False) -> Source:
    """The folder of a model, fetched from the hub if it is missing and the hub can be reached."""
    untrained = name.startswith(UNTRAINED)
    plain = name.removeprefix(UNTRAINED)
    if not plain:
        raise InputError(f'model "{name}" has no name after the colon: give for example {UNTRAINED}{MINILM}.')
    folder = _folder(plain, revision, weights=not untrained, allow_bin=allow_bin)
    if not (folder / "config.json").is_file():
        raise InputError(f"model {plain} has no config.json: give a folder saved by save_pretrained, or a hub name.")
    pickled = not untrained and _needs_pickle(plain, folder, allow_bin=allow_bin)
    return Source(name, revision, folder, untrained, pickled)


def _folder(name: str, revision: str, *, weights: bool, allow_bin: bool) -> Path:
    if name == MINILM and revision:
        raise InputError(f"--revision {revision} is of no use for {name}, which has one: leave it out.")
    if name == MINILM or expanded(name).is_dir():
        folder = Path(model_source(name)) / revision
        if not folder.is_dir():
            raise InputError(f"--revision {revision} is no folder in {name}: name those that hold its checkpoints.")
        return folder
    if Path(name).exists():
        raise InputError(f"model {name} is a file: give the folder that holds it, or a name on the hub.")
    patterns = [*FILES, *([SAFE_WEIGHTS] if weights else []), *([PICKLED_WEIGHTS] if weights and allow_bin else [])]
    return _from_hub(name, revision, patterns)


def _from_hub(name: str, revision: str, patterns: list[str]) -> Path:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError
        from huggingface_hub.errors import RevisionNotFoundError as NoRevisionError
    except ImportError:
        raise InputError(f"models on the hub need transformers, which is not installed: {INSTALL}.") from None
    try:
        cached_only = not hub.reachable()
        folder = snapshot_download(
            name, revision=revision or None, allow_patterns=patterns, local_files_only=cached_only
        )
        return Path(folder)
    except HFValidationError:
        raise InputError(
            f"model {name} is neither a folder nor a possible name on the hub: give {MINILM}, a folder, or a name "
            "such as google-bert/bert-base-uncased."
        ) from None
    except GatedRepoError:
        raise InputError(f"model {name} is gated: ask for access on its page and log in, or give a folder.") from None
    except RepositoryNotFoundError:
        raise InputError(f"model {name} is not on the hub: check the name, or give {MINILM} or a folder.") from None
    except NoRevisionError:
        raise InputError(f"--revision {revision} is not one of {name}'s: give a branch, tag or commit of it.") from None
    except (OSError, ValueError):
        raise InputError(
            f"model {name}{f' (revision {revision})' if revision else ''} is not in the local cache and the hub cannot "
            f"be reached: give {MINILM} or a local folder, or connect to the network."
        ) from None


def _needs_pickle(name: str, folder: Path, *, allow_bin: bool) -> bool:
    """Whether weights must come from a pickle; refused unless allowed."""
    if any(folder.glob(SAFE_WEIGHTS)):
        return False
    # Pickles are fetched from the hub only if they are allowed, so a name there may have some.
    known = allow_bin or expanded(name).is_dir()
    if known and not any(folder.glob(PICKLED_MODEL)):
        raise InputError(f"model {name} has no weights: its folder must hold model.safetensors or pytorch_model.bin.")
    if not allow_bin:
        raise InputError(
            f"model {name} has no .safetensors weights: convert it with save_pretrained, or allow pickled .bin weights "
            "with --allow-bin if you trust their source."
        )
    return True


def has_tokenizer(folder: Path) -> bool:
    """Whether a tokenizer's files are among a folder's."""
    return any(path.is_file() for pattern in TOKENIZERS for path in folder.glob(pattern))
