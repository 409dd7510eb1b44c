"""Run the fast tests as other processors would compute: another rounding, the same conclusions.

    python tools/portable.py                 every processor that this one can stand in for
    python tools/portable.py --as Haswell    one of them
    python tools/portable.py tests/theory    with words for pytest, here a folder

OpenBLAS (in NumPy and SciPy), MKL and ATen (in PyTorch) and NumPy's own loops choose their code by the processor, and
each can be told to take another's. Only what the processor at hand has the instructions for can be run.
"""

import argparse
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

AVX2 = frozenset({"avx2", "fma"})
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
WITHOUT_AVX512 = "X86_V4 AVX512_ICL AVX512_SPR"


class Processor(NamedTuple):
    """A processor by OpenBLAS's name for it, what it needs, and what makes the libraries compute as there."""

    name: str
    needs: frozenset[str]
    settings: dict[str, str]

    @property
    def environment(self) -> dict[str, str]:
        """Of the tests that are run as on it."""
        return {"OPENBLAS_CORETYPE": self.name} | self.settings


PROCESSORS = (
    Processor(
        "Nehalem",
        frozenset({"sse4_2"}),
        {
            "ATEN_CPU_CAPABILITY": "default",
            "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
            "NPY_DISABLE_CPU_FEATURES": f"X86_V3 {WITHOUT_AVX512}",
        },
    ),
    Processor(
        "Haswell",
        AVX2,
        {
            "ATEN_CPU_CAPABILITY": "avx2",
            "MKL_ENABLE_INSTRUCTIONS": "AVX2",
            "NPY_DISABLE_CPU_FEATURES": WITHOUT_AVX512,
        },
    ),
    # Not Intel's: there MKL takes a path of its own.
    Processor(
        "Zen",
        AVX2,
        {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "COMPATIBLE", "NPY_DISABLE_CPU_FEATURES": WITHOUT_AVX512},
    ),
    Processor("SkylakeX", AVX512, {"ATEN_CPU_CAPABILITY": "avx512", "MKL_ENABLE_INSTRUCTIONS": "AVX512"}),
)

# What the libraries say they compute as: OpenBLAS's name and ATen's.
REPORT = """
import threadpoolctl, scipy.linalg, torch
names = {library["architecture"] for library in threadpoolctl.threadpool_info() if "architecture" in library}
print(*sorted(names), torch.backends.cpu.get_cpu_capability().lower())
"""


def main() -> int:
    """Run pytest once per processor; exit with 1 if a test failed on any."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--as", dest="name", choices=[processor.name for processor in PROCESSORS])
    given, words = options.parse_known_args()
    flags = instructions()
    runnable = [processor for processor in PROCESSORS if processor.needs <= flags]
    if given.name:
        runnable = [processor for processor in runnable if processor.name == given.name]
    if not runnable:
        print("this processor can stand in for no other of the list: nothing is run.", file=sys.stderr)
    return max([run(processor, words) for processor in runnable], default=0)


def instructions() -> frozenset[str]:
    """What the processor can do, by Linux's names; nothing where that is not known."""
    described = Path("/proc/cpuinfo")
    if platform.machine() != "x86_64" or not described.exists():
        return frozenset()
    lines = described.read_text(encoding="utf-8").splitlines()
    return frozenset(next((line for line in lines if line.startswith("flags")), "").split())


def computed_as(environment: dict[str, str]) -> list[str]:
    """Names that the libraries give to what they compute as."""
    command = [sys.executable, "-c", REPORT]
    found = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True)
    return found.stdout.split()


def run(processor: Processor, words: list[str]) -> int:
    """Pytest's exit code on a processor; 1 where the libraries compute as on another, for then nothing is tested."""
    found = computed_as(processor.environment)
    settings = " ".join(f'{name}="{value}"' for name, value in processor.environment.items())
    print(f"as on {processor.name}: {settings}")
    # OpenBLAS as NumPy and SciPy bring it has one code for Haswell and Zen.
    blas = {"Haswell", "Zen"} if processor.name == "Zen" else {processor.name}
    if not set(found) <= blas | {processor.settings["ATEN_CPU_CAPABILITY"]}:
        print(f"the libraries compute as {' '.join(found)} instead.", file=sys.stderr)
        return 1
    sys.stdout.flush()
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", *words]
    return int(subprocess.run(command, env=os.environ | processor.environment, check=False).returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
