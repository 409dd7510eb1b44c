"""``topicscope theory``: every closed form, exact optimum and floor of one setting."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from topicscope.commands.folders import check_empty
from topicscope.commands.options import INLINE, keywords, parse
from topicscope.commands.terminal import as_json, console, print_json, print_parts, progress_bar
from topicscope.errors import path_of
from topicscope.records import field_docstrings
from topicscope.reporting.rounding import powers
from topicscope.store import write_atomically
from topicscope.theory.setting import TheorySetting, errors_with_option_names
from topicscope.theory.summary import SAMPLES, Summary, Theory, dense_model, optimum_matrices
from topicscope.theory.take_off import Stepping
from topicscope.work import Report

DESCRIPTION = """Closed forms, exact optima and floors for one setting: what training should lead to.

Topics of your own (--topic-words), which may overlap, have exact optima too, and Theorem 2's question has an answer for
them; the closed forms are about disjoint topics of equally likely words. With --out the optima are drawn beside Theorem
2's matrix: optimum.png and optimum.svg, theory.json, and the matrices themselves in theory.npz.

examples:
  topicscope theory
  topicscope theory --topics 100 --per-document 10 --json
  topicscope theory --mask 0.3 --keep 0.2 --random 0.05 --samples 10000
  topicscope theory --dirichlet 1.0 --length 20 40 --samples 0
  topicscope theory --topic-words topics.csv --length 40 60 --out own-topics
  topicscope theory --loss cross_entropy --rate 30 --scale 0.02
"""

# The matrices that are drawn.
MATRICES = {
    "finite": "finite LDA documents: exact optimum",
    "finite_topics": "finite τ-topic documents: exact optimum",
    "theorem2": "infinite documents, λ → 0: Theorem 2",
}
LOSSES = {"cross_entropy": "cross-entropy", "squared": "squared"}


def theory(
    setting: TheorySetting | None = None,
    *,
    stepping: Stepping | None = None,
    take_off: bool = True,
    samples: int = SAMPLES,
    seed: int = 0,
    out: Path | str | None = None,
    report: Report | None = None,
) -> Theory:
    """All closed forms and exact optima of a setting (by default the paper's), its dynamics and its Bayes floors.

    ``samples`` documents are drawn for each of the floors; 0 leaves them out. ``take_off`` predicts when attention
    takes off under the optimiser that ``stepping`` describes, which takes some seconds. With ``out``, a new or empty
    folder, theory.json, theory.npz, optimum.png and optimum.svg are written to it.
    """
    setting = setting or TheorySetting()
    if out is not None:
        out = path_of(out, "out")
        check_empty(out)
        with errors_with_option_names():
            dense_model(setting, "dirichlet")
    result = Summary(setting, stepping or Stepping(), take_off, samples, seed, report).theory()
    if out is not None:
        _write(result, out)
    return result


def _write(result: Theory, out: Path) -> None:
    """The numbers, the matrices and their picture."""
    from topicscope.reporting.figures import heat_maps, save_figure

    out.mkdir(parents=True, exist_ok=True)
    setting = result.setting
    matrices, word_topics = optimum_matrices(setting)
    arrays = io.BytesIO()
    np.savez_compressed(arrays, allow_pickle=False, word_topics=word_topics, **matrices)
    write_atomically(out / "theory.npz", arrays.getvalue())
    panels = {MATRICES[name]: matrix for name, matrix in matrices.items()}
    own = f", topics of {Path(setting.topic_words).name}" if setting.topic_words else ""
    figure = heat_maps(
        panels,
        word_topics=word_topics,
        columns=len(panels),
        title=f"$W^V$ under uniform attention{own}: T = {setting.topics}, τ = {setting.per_document}, "
        f"N = {setting.length[0]} … {setting.length[1]}",
        same_scale=[tuple(panels)],
    )
    save_figure(figure, out / "optimum")
    write_atomically(out / "theory.json", as_json(result))


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command."""

    setting: Annotated[TheorySetting, INLINE] = TheorySetting()

    stepping: Annotated[Stepping, INLINE] = Stepping()

    samples: int = SAMPLES
    """How many documents to draw for each Bayes floor; 0 leaves the floors out."""

    take_off: bool = True
    """Predict when attention takes off, which takes some seconds."""

    seed: int = 0
    """Seed of the documents drawn for the Bayes floors."""

    out: Path | None = None
    """A new or empty folder to write the numbers, the matrices and their picture to."""

    json: bool = False
    """Print JSON."""

    quiet: bool = False
    """No progress bar."""


def main(words: list[str]) -> None:
    """Parse, compute, print."""
    options = parse(Options, words, command="theory", description=DESCRIPTION)
    with progress_bar("Bayes floors", quiet=options.quiet) as report:
        result = theory(**keywords(options), report=report)
    if options.json:
        print_json(result)
        return
    console().print(f"{result.setting}\n")
    titles = field_docstrings(Theory)
    if result.dynamics is not None:
        how = result.dynamics.stepping
        adam = f", ε = {how.epsilon:g}" if how.optimizer == "adam" else ""
        start = f"weights from N(0, {how.scale:g}²), d_a = {how.width}"
        titles["dynamics"] += powers(f" with {how.optimizer} at {how.rate:g}{adam}, {LOSSES[how.loss]} loss, {start}")
    print_parts(result, titles, digits=8)
    if options.out:
        console().print(f"{options.out}: optimum.png, optimum.svg, theory.json, theory.npz")
