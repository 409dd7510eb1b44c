"""Where to compute, and whether it can in low precision: some processors announce instructions that end the process."""

import logging
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING

from topicscope.errors import InputError

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

# A product as large as those for which the library chooses such instructions.
TRIAL = "import torch; torch.nn.functional.linear(*torch.ones(2, 64, 64, dtype=torch.{dtype}))"


def device_named(name: str) -> "torch.device":
    """The device to run on; "auto" is the first available of CUDA, MPS and CPU."""
    import torch

    present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(kind for kind in present if present[kind]))
    if not present[name]:
        raise InputError(f"--device {name} is not available here: give cpu, or auto.")
    return torch.device(name)


def usable_precision(dtype: str, device: str) -> str:
    """Give the dtype, or "float32" with a warning where it does not work: it is tried once, in another process."""
    if device != "cpu" or dtype in ("float32", "float64") or works_on_processor(dtype):
        return dtype
    logger.warning(
        "%s does not work on this processor, which announces instructions that it cannot run: computing in float32 "
        "instead; with ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 in the environment it may work.",
        dtype,
    )
    return "float32"


@cache
def works_on_processor(dtype: str) -> bool:
    """Whether a process that multiplies matrices of this dtype survives it."""
    command = [sys.executable, "-c", TRIAL.format(dtype=dtype)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603 (our own program)
