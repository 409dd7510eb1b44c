"""Checkpoints: tensors and a step in one safetensors file, with a checksum; the two newest are kept."""

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from topicscope.files import checkpoint_path, checkpoint_steps, write_atomically

logger = logging.getLogger(__name__)

KEPT = 2


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """All that training needs to go on after ``step`` updates; random numbers follow from the step."""

    step: int
    tensors: dict[str, Tensor]
    """``weights/PARAMETER``, ``optimizer/PARAMETER/QUANTITY``, and ``history/STEP``: W^V at earlier steps that a later
    row's rotation compares with."""

    def part(self, name: str) -> dict[str, Tensor]:
        """The weights, the optimizer or the history."""
        start = f"{name}/"
        return {path.removeprefix(start): each for path, each in self.tensors.items() if path.startswith(start)}


def save_checkpoint(folder: Path, checkpoint: Checkpoint, *, every: int) -> None:
    """Write a checkpoint, then remove all but the newest two.

    ``every`` is the number of steps between checkpoints. One in between, where a run was stopped, is removed as soon as
    there is a newer one, so that a run that was stopped ends with the same files as one that was not.
    """
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
    # One entry only: safetensors writes several in no fixed order, and files must repeat to the bit.
    metadata = {"checksum": _checksum(checkpoint.step, tensors)}
    write_atomically(checkpoint_path(folder, checkpoint.step), safetensors.torch.save(tensors, metadata))
    steps = checkpoint_steps(folder)
    kept = [step for step in steps if step % every == 0 or step >= checkpoint.step][-KEPT:]
    for step in set(steps) - set(kept):
        checkpoint_path(folder, step).unlink()


def newest_checkpoint(folder: Path) -> Checkpoint | None:
    """The newest undamaged checkpoint; damaged ones are skipped with a warning, and put aside."""
    steps = checkpoint_steps(folder)
    for place, step in reversed(list(enumerate(steps))):
        path = checkpoint_path(folder, step)
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a dict)
            if metadata.get("checksum") != _checksum(step, tensors):
                raise ValueError("its checksum does not match its content")
            return Checkpoint(step, tensors)
        except (SafetensorError, ValueError, KeyError) as error:
            instead = f"going back to that of step {steps[place - 1]}" if place else "starting again from step 0"
            logger.warning("%s is damaged (%s): %s.", path.name, error, instead)
            path.replace(path.with_name(path.name + ".damaged"))
    return None


def newest_checkpoints(folders: Sequence[Path]) -> list[Checkpoint]:
    """The checkpoints of the newest step that all folders have undamaged; none if there is no such step.

    Runs that are trained together are saved one after another, so after a kill some may be a checkpoint ahead. What is
    newer than the common step is removed: it will be computed again, the same.
    """
    while True:
        found = [newest_checkpoint(folder) for folder in folders]
        whole = [checkpoint for checkpoint in found if checkpoint is not None]
        common = min(checkpoint.step for checkpoint in whole) if len(whole) == len(folders) else -1
        ahead = [(folder, step) for folder in folders for step in checkpoint_steps(folder) if step > common]
        if not ahead:
            return whole
        for folder, step in ahead:
            checkpoint_path(folder, step).unlink()


def _checksum(step: int, tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(str(step).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
