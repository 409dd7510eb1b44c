"""``topicscope check``: how far a matrix is from Lemma 1, Theorems 1 and 2 and the finite-document optimum.

The matrix is in a file, or it is a run's: its map from frequencies to predictions under uniform attention, beside the
optimum that the run's own settings tend to.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Float

from topicscope.commands.folders import check_empty
from topicscope.commands.options import INLINE, POSITIONAL, parse
from topicscope.commands.terminal import as_json, console, print_json, print_rows
from topicscope.errors import InputError, path_of
from topicscope.reporting.rounding import readable
from topicscope.settings import Data, Masking
from topicscope.settings.data import Sampler
from topicscope.store import load_array, one_layer, write_atomically
from topicscope.theory.check import Check, FamilyResiduals, check_matrix
from topicscope.theory.setting import TheorySetting, errors_with_option_names

DESCRIPTION = """How far a matrix is from Lemma 1, Theorems 1 and 2, and the optimum for finite documents.

A run folder has its own settings, and a note says what they do not define; for a .npy or .safetensors file the settings
are given here, and must define Lemma 1 and Theorem 2 (T above τ, p_c + p_r below 1). Topics may be your own and overlap
(--topic-words): the exact optimum and an answer to Theorem 2's question exist for them too, Lemma 1 and Theorem 1 do
not. With --out each matrix is drawn beside its optimum and Theorem 2's.

examples:
  topicscope check runs/figure2
  topicscope check value.npy --topics 10 --words 10
  topicscope check weights.safetensors --tensor weights/value --json
  topicscope check embedding.npy --kind embedding
  topicscope check value.npy --topic-words topics.csv --length 40 60 --out checked
"""

Kind = Literal["value", "embedding"]

CLASSES = {
    "same_word": "same word",
    "same_topic": "same topic, other word",
    "different_topic": "different topic",
    "mask_column": "[MASK] column",
    "mask_row": "0-th row",
}
CLAUSES = {
    "1a": "1(a)  W₀₀ = −c₂u₀",
    "1b": "1(b)  Σ_t W₀ₗ = vu₀",
    "2a": "2(a)  [MASK] column",
    "3a": "3(a)  Σ own topic = c₃ + vuᵢ",
    "3b": "3(b)  Σ other topic = vuᵢ",
}


def check(
    path: Path | str,
    data: Data | None = None,
    masking: Masking | None = None,
    *,
    kind: Kind = "value",
    tensor: str = "",
    layer: int | None = None,
) -> Check:
    """Check the newest checkpoint of a run folder, or a matrix in a .npy or .safetensors file.

    A run folder has its own setting; for a file it is ``data`` and ``masking`` (by default the paper's), also with
    topics of your own, which may overlap.
    ``kind`` says whether the file holds W (a row per predicted token) or W^E⊤ (a row per token). ``tensor`` names the
    tensor of a .safetensors file that has several, ``layer`` the layer of a tensor that has several, from 0.

    A setting without Lemma 1 and Theorem 2 (T = τ; p_c + p_r = 1) is refused for a file, since it was given for them;
    a run's setting cannot be changed, so there it is a note and the finite-document optimum remains.
    """
    path = path_of(path, "path")
    if path.is_dir():
        from topicscope.training.reference import check_run

        return check_run(path, layer)
    matrix = _read_matrix(path, tensor, layer)
    return check_matrix(matrix, data or Data(), masking or Masking(), str(path), embedding=kind == "embedding")


def _read_matrix(path: Path, tensor: str, layer: int | None) -> Float[np.ndarray, "row column"]:
    if path.suffix in (".npy", ".safetensors"):
        array = load_array(path, tensor, alone=not tensor)
        return one_layer(array, f"{path}, tensor {tensor}," if tensor else str(path), layer)
    problem = "cannot be checked" if path.exists() else "does not exist"
    raise InputError(f"{path} {problem}: give a run folder, a .npy or a .safetensors file.")


@dataclass(frozen=True)
class Options:
    """Files and their setting."""

    files: Annotated[tuple[Path, ...], POSITIONAL]
    """Run folders, .npy or .safetensors files."""

    kind: Kind = "value"
    """What a file holds: "value" is W, a row per predicted token; "embedding" is W^E⊤, a row per token."""

    tensor: str = ""
    """Which tensor of a .safetensors file."""

    layer: int | None = None
    """Which layer, from 0, where there are several."""

    sampler: Sampler = Data.sampler
    """Finite documents from a Dirichlet (LDA), or of τ topics."""

    setting: Annotated[TheorySetting, INLINE] = TheorySetting()

    out: Path | None = None
    """A new or empty folder: each matrix is drawn there beside its optima, and check.json has the numbers."""

    json: bool = False
    """Print JSON instead of tables."""


def main(words: list[str]) -> None:
    """Check every file, draw it if that is asked for, and print the results, the verdict first."""
    options = parse(Options, words, command="check", description=DESCRIPTION)
    if not options.files:
        raise InputError("No file is given: name a run folder, a .npy or a .safetensors file.")
    if options.out:
        check_empty(options.out)
    results = [_check(path, options) for path in options.files]
    drawn = _write(results, options.out) if options.out else []
    if options.json:
        print_json(results)
        return
    for result in results:
        _print(result)
    if drawn:
        console().print(f"{options.out}: {', '.join(path.name for path in drawn)}, check.json")


def _check(path: Path, options: Options) -> Check:
    if path.is_dir():
        if (options.setting, options.sampler) != (Options.setting, Options.sampler):
            raise InputError(
                f"{path} is a run folder and has its own settings: leave those of documents and masks out."
            )
        return check(path, layer=options.layer)
    data, masking = options.setting.data(options.sampler), options.setting.masking
    with errors_with_option_names():
        return check(path, data, masking, kind=options.kind, tensor=options.tensor, layer=options.layer)


def _write(results: Sequence[Check], out: Path) -> list[Path]:
    """The numbers, and each matrix drawn beside the optima, on one scale, and its difference from the exact one."""
    from topicscope.reporting.figures import heat_maps, save_figure

    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, result in enumerate(results, start=1):
        names = {
            "matrix": result.matrix,
            "finite": "exact optimum, finite documents",
            "theorem_2": "Theorem 2: infinite documents, λ → 0",
        }
        panels = {names[name]: matrix for name, matrix in result.matrices.items()}
        same_scale = tuple(panels)
        if "finite" in result.matrices:
            panels[f"{result.matrix} − exact optimum"] = result.matrices["matrix"] - result.matrices["finite"]
        figure = heat_maps(
            panels, word_topics=result.word_topics, columns=len(panels), title=result.verdict, same_scale=[same_scale]
        )
        paths += save_figure(figure, out / f"matrix-{number}")
    write_atomically(out / "check.json", as_json(results))
    return paths


def _print(result: Check) -> None:
    """The verdict, then notes, which come before the numbers that they qualify."""
    screen = console()
    screen.print(str(result), style="bold")
    for note in result.notes:
        screen.print(f"note: {note}")
    optima = {"Theorem 2": result.theorem_2, "finite documents": result.finite}
    known = {title: optimum for title, optimum in optima.items() if optimum is not None}
    rows = []
    for name, label in CLASSES.items():
        if average := result.classes.get(name):
            means = [optimum.classes[name] for optimum in known.values()]
            sizes = [optimum.clauses[name].rms for optimum in known.values()]
            rows.append([label, average.mean, average.spread, average.count, *(m and m.mean for m in means), *sizes])
    heading = ("entries", "mean", "spread", "number", *known, *(f"rms: {title}" for title in known))
    print_rows(rows, heading, digits=6)
    _print_family("Lemma 1", result.lemma_1)
    _print_family("Theorem 1 (E = W^E⊤W^E)", result.theorem_1)
    losses = [
        (title, o.loss, o.optimum_loss, o.excess_loss, o.distance, f"{o.relative_distance:.2%}")
        for title, o in known.items()
    ]
    print_rows(losses, ("optimum", "loss", "its loss", "excess", "distance", "relative"), digits=8)


def _print_family(title: str, family: FamilyResiduals | None) -> None:
    if family is None:
        return
    first, *others = family.u
    note = (
        f"u₀ = {readable(first, 3)}, other u from {readable(min(others), 3)} to {readable(max(others), 3)}; "
        f"distance {readable(family.distance, 3)}; loss {family.loss:.8f}, excess {readable(family.excess_loss, 3)}"
    )
    rows = [(text, family.clauses[name].worst, family.clauses[name].rms) for name, text in CLAUSES.items()]
    print_rows(rows, (title, "worst", "rms"), note=note, digits=3)
