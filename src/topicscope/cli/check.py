"""``topicscope check``: options and tables."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from topicscope.cli.main import parse
from topicscope.cli.terminal import console, print_json
from topicscope.commands.check import Check, Kind, check
from topicscope.commands.setting import TheorySetting, errors_with_option_names
from topicscope.errors import InputError
from topicscope.settings import Data
from topicscope.settings.data import Sampler
from topicscope.theory.residuals import FamilyResiduals, OptimumResiduals

DESCRIPTION = """How far a matrix is from Lemma 1, Theorems 1 and 2, and the optimum for finite documents.

A run folder brings its own settings, and what they do not define becomes a note; for a .npy or .safetensors file they
are given here, and must define Lemma 1 and Theorem 2 (T above τ, p_c + p_r below 1).

examples:
  topicscope check runs/figure2
  topicscope check value.npy --topics 10 --words 10
  topicscope check weights.safetensors --tensor weights/value --json
  topicscope check embedding.npy --kind embedding
"""

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


@dataclass(frozen=True)
class Options:
    """Files and their setting."""

    files: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Run folders, .npy or .safetensors files."""

    kind: Kind = "value"
    """What a file holds: "value" is W, a row a predicted token; "embedding" is W^E⊤, a row a token."""

    tensor: str = ""
    """Which tensor of a .safetensors file."""

    layer: int | None = None
    """Which layer, from 0, where there are several."""

    sampler: Sampler = Data.sampler
    """Finite documents from a Dirichlet (LDA), or of τ topics."""

    setting: Annotated[TheorySetting, tyro.conf.arg(name="")] = TheorySetting()

    json: bool = False
    """Print JSON instead of tables."""


def main(words: list[str]) -> int:
    """Check every file and print the results."""
    options = parse(lambda: tyro.cli(Options, args=words, prog="topicscope check", description=DESCRIPTION))
    if not options.files:
        raise InputError("No file is given: name a run folder, a .npy or a .safetensors file.")
    results = [_check(path, options) for path in options.files]
    if options.json:
        print_json([result.to_dict() for result in results])
        return 0
    screen = console()
    for result in results:
        _show(screen, result)
    return 0


def _check(path: Path, options: Options) -> Check:
    if path.is_dir():
        given = {**dataclasses.asdict(options.setting), "sampler": options.sampler}
        for name, default in {**dataclasses.asdict(TheorySetting()), "sampler": Data.sampler}.items():
            if given[name] != default:
                option = name.replace("_", "-")
                raise InputError(f"{path} is a run folder and has its own settings: leave --{option} out.")
        return check(path, layer=options.layer)
    data, masking = options.setting.data(options.sampler), options.setting.masking
    with errors_with_option_names():
        return check(path, data, masking, kind=options.kind, tensor=options.tensor, layer=options.layer)


def _show(screen: Console, result: Check) -> None:
    screen.print(f"{result.matrix} of {result.source}", style="bold", markup=False)
    # Before the numbers, which they qualify.
    for note in result.notes:
        screen.print(f"note: {note}", markup=False)
    screen.print(_class_table(result))
    for title, family in (("Lemma 1", result.lemma_1), ("Theorem 1 (E = W^E⊤W^E)", result.theorem_1)):
        if family is not None:
            screen.print(_family_table(title, family))
    losses = Table("optimum", "loss", "its loss", "excess", "distance", "relative")
    for title, optimum in (("Theorem 2", result.theorem_2), ("finite documents", result.finite)):
        if optimum is not None:
            losses.add_row(title, *_loss_cells(optimum))
    if losses.row_count:
        screen.print(losses)


def _class_table(result: Check) -> Table:
    table = Table("entries", "mean", "spread", "number", "rms: Theorem 2", "rms: finite")
    for name, title in CLASSES.items():
        average = result.classes.get(name)
        if average is not None:
            optima = (result.theorem_2, result.finite)
            distances = ["–" if optimum is None else f"{optimum.clauses[name].rms:.3g}" for optimum in optima]
            table.add_row(title, f"{average.mean:.7f}", f"{average.spread:.3g}", str(average.count), *distances)
    return table


def _family_table(title: str, family: FamilyResiduals) -> Table:
    caption = (
        f"u₀ = {family.u[0]:.3g}, other u from {min(family.u[1:]):.3g} to {max(family.u[1:]):.3g}; "
        f"distance {family.distance:.3g}; loss {family.loss:.8f}, excess {family.excess_loss:.3g}"
    )
    table = Table(title, "worst", "rms", caption=caption, caption_justify="left")
    for name, text in CLAUSES.items():
        deviation = family.clauses[name]
        table.add_row(text, f"{deviation.worst:.3g}", f"{deviation.rms:.3g}")
    return table


def _loss_cells(optimum: OptimumResiduals) -> list[str]:
    return [
        f"{optimum.loss:.8f}",
        f"{optimum.optimum_loss:.8f}",
        f"{optimum.excess_loss:.3g}",
        f"{optimum.distance:.4g}",
        f"{optimum.relative_distance:.2%}",
    ]
