"""Build the playground's WebAssembly from its C sources: ``make playground``.

The built file is committed, so that only who changes the C needs the compiler (``ziglang``, of the ``dev`` extra). The
sources' hash is compiled in: a test compares it, and a slow one builds again and compares the bytes.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "src/topicscope/reporting/playground"
CORE = FOLDER / "core"
BUILT = FOLDER / "playground.wasm"
SOURCES = ("documents.c", "transformer.c", "theory.c", "bayes.c", "optimum.c", "take_off.c")
# No relaxed SIMD: it is faster, but may differ between machines.
FLAGS = (
    "--target=wasm32-freestanding", "-O3", "-mcpu=generic+simd128+bulk_memory+nontrapping_fptoint", "-nostdlib",
    "-ffp-contract=off", "-fno-math-errno", "-Wall", "-Wextra", "-Werror",
    "-Wl,--no-entry", "-Wl,--strip-all", "-Wl,-z,stack-size=65536",
)  # fmt: skip


def source_hash() -> str:
    """Of all that the built file depends on but the compiler."""
    texts = [" ".join(FLAGS), *((CORE / name).read_text(encoding="utf-8") for name in ("playground.h", *SOURCES))]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def build(file: Path) -> None:
    """Compile to WebAssembly."""
    mark = f'-DSOURCE_HASH="{source_hash()}"'
    command = [sys.executable, "-m", "ziglang", "cc", *FLAGS, mark, *SOURCES, "-o", str(file.resolve())]
    subprocess.run(command, cwd=CORE, check=True)


if __name__ == "__main__":
    build(BUILT)
    print(f"{BUILT}: {BUILT.stat().st_size:,} bytes")
