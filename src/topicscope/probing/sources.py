"""Where the files of a model are, and what identifies them: found before anything heavy is loaded.

A model is a name on the Hugging Face hub, a folder, or the packaged default; its files are in one folder.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from topicscope.errors import InputError
from topicscope.store import expanded
from topicscope.text import hub
from topicscope.text.tokenizers import MINILM, UNTRAINED, model_source

INSTALL = 'pip install "topicscope[language]"'
# What is fetched from a repository: settings, vocabularies and weights. Pickled weights are never read.
FILES, WEIGHTS = ("*.json", "*.txt", "*.model"), "*.safetensors"
TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "vocab.*", "*.model")


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

    @property
    def tokenizer_folder(self) -> Path:
        """Where its tokenizer is: a checkpoint within a folder may use the folder's."""
        above = self.folder.parent
        return above if self.revision and not has_tokenizer(self.folder) and has_tokenizer(above) else self.folder

    @cached_property
    def digest(self) -> str:
        """Identifies the model's content as it was when first asked for; it is passed on to other processes."""
        return self.current_digest()

    def current_digest(self) -> str:
        """Identifies the current content of the folder: its settings and, if trained, its weights."""
        digest = hashlib.sha256(b"untrained" if self.untrained else b"trained")
        patterns = ("config.json",) if self.untrained else ("config.json", WEIGHTS)
        for path in sorted({path for pattern in patterns for path in self.folder.glob(pattern)}):
            digest.update(f"{path.name} {path.stat().st_size}".encode())
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()[:20]


def find_model(name: str, *, revision: str = "") -> Source:
    """The folder of a model, fetched from the hub if it is missing and the hub can be reached."""
    untrained = name.startswith(UNTRAINED)
    plain = name.removeprefix(UNTRAINED)
    if not plain:
        raise InputError(f'model "{name}" has no name after the colon: give for example {UNTRAINED}{MINILM}.')
    folder = _folder(plain, revision, weights=not untrained)
    if not (folder / "config.json").is_file():
        raise InputError(f"model {plain} has no config.json: give a folder saved by save_pretrained, or a hub name.")
    if not untrained and not any(folder.glob(WEIGHTS)):
        raise InputError(
            f"model {plain} has no .safetensors weights, and pickled ones could run code: save it again with "
            "save_pretrained, or give another."
        )
    return Source(name, revision, folder, untrained)


def _folder(name: str, revision: str, *, weights: bool) -> Path:
    if name == MINILM and revision:
        raise InputError(f"--revision {revision} is of no use for {name}, which has one: leave it out.")
    if name == MINILM or expanded(name).is_dir():
        folder = Path(model_source(name)) / revision
        if not folder.is_dir():
            raise InputError(f"--revision {revision} is no folder in {name}: name those that hold its checkpoints.")
        return folder
    if Path(name).exists():
        raise InputError(f"model {name} is a file: give the folder that holds it, or a name on the hub.")
    return _from_hub(name, revision, [*FILES, *([WEIGHTS] if weights else [])])


def _from_hub(name: str, revision: str, patterns: list[str]) -> Path:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import GatedRepoError, HFValidationError
        from huggingface_hub.errors import RevisionNotFoundError as NoRevisionError
    except ImportError:
        raise InputError(f"models on the hub need transformers, which is not installed: {INSTALL}.") from None
    at = f" at revision {revision}" if revision else ""
    # A gated repository counts as one that is not found, and all as a fault of the system.
    refused = {
        HFValidationError: f"is neither a folder nor a possible name on the hub: give {MINILM}, a folder, or a name "
        "such as google-bert/bert-base-uncased",
        GatedRepoError: "is gated: ask for access on its page and log in, or give a folder",
        NoRevisionError: f"has no revision {revision}: give a branch, tag or commit of it",
        Exception: f"is not{at} in the local cache, and the hub does not have it or cannot be reached: check the name "
        f"and the network, or give {MINILM} or a folder",
    }
    try:
        cached = not hub.reachable()
        return Path(
            snapshot_download(name, revision=revision or None, allow_patterns=patterns, local_files_only=cached)
        )
    except (OSError, ValueError) as error:
        why = next(sentence for kind, sentence in refused.items() if isinstance(error, kind))
        raise InputError(f"model {name} {why}.") from None


def has_tokenizer(folder: Path) -> bool:
    """Whether a tokenizer's files are among a folder's."""
    return any(path.is_file() for pattern in TOKENIZERS for path in folder.glob(pattern))
