"""Run the fast tests as other processors would compute: another rounding, the same conclusions.

    python tools/portable.py                 every processor that this one can stand in for
    python tools/portable.py --as Haswell    one of them
    python tools/portable.py tests/theory    with words for pytest, here a folder

OpenBLAS (in NumPy and SciPy), MKL and ATen (in PyTorch) and NumPy's own loops choose their code by the processor, and
each can be told to take another's. Only what the processor at hand has the instructions for can be run.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

AVX2 = {"avx2", "fma"}
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
WITHOUT_AVX512 = "X86_V4 AVX512_ICL AVX512_SPR"

# By OpenBLAS's name: what a processor needs, by Linux's names, and what makes ATen, MKL and NumPy compute as there. Zen
# is not Intel's: there MKL takes a path of its own.
PROCESSORS: dict[str, tuple[set[str], dict[str, str]]] = {
    "Nehalem": (
        {"sse4_2"},
        {
            "ATEN_CPU_CAPABILITY": "default",
            "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
            "NPY_DISABLE_CPU_FEATURES": f"X86_V3 {WITHOUT_AVX512}",
        },
    ),
    "Haswell": (
        AVX2,
        {
            "ATEN_CPU_CAPABILITY": "avx2",
            "MKL_ENABLE_INSTRUCTIONS": "AVX2",
            "NPY_DISABLE_CPU_FEATURES": WITHOUT_AVX512,
        },
    ),
    "Zen": (
        AVX2,
        {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "COMPATIBLE", "NPY_DISABLE_CPU_FEATURES": WITHOUT_AVX512},
    ),
    "SkylakeX": (AVX512, {"ATEN_CPU_CAPABILITY": "avx512", "MKL_ENABLE_INSTRUCTIONS": "AVX512"}),
}


def main() -> int:
    """Run pytest once per processor; exit with 1 if a test failed on any."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--as", dest="name", choices=PROCESSORS)
    given, words = options.parse_known_args()
    runnable = [name for name in runnable_here() if given.name in (None, name)]
    if not runnable:
        print("this processor can stand in for no other of the list: nothing is run.", file=sys.stderr)
    return max([run(name, words) for name in runnable], default=0)


def runnable_here() -> list[str]:
    """The processors that this one has all instructions of; none where Linux does not say what it has."""
    described = Path("/proc/cpuinfo")
    lines = described.read_text(encoding="utf-8").splitlines() if described.exists() else []
    flags = set(next((line for line in lines if line.startswith("flags")), "").split())
    return [name for name, (needs, _) in PROCESSORS.items() if needs <= flags]


def run(name: str, words: list[str]) -> int:
    """Run pytest as on a processor; 1 if a test failed."""
    environment = {"OPENBLAS_CORETYPE": name, **PROCESSORS[name][1]}
    print(f"as on {name}:", " ".join(f'{key}="{value}"' for key, value in environment.items()), flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", *words]
    return int(subprocess.run(command, env=os.environ | environment, check=False).returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
