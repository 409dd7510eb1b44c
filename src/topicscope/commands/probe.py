"""``topicscope probe``: topic structure in pretrained models, on any corpus, into a folder.

This file has the command's options, the function :func:`probe` behind it, and the table that it prints. Torch takes
seconds to load, so it is loaded only after the options were checked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from rich.table import Table

from topicscope.commands.folders import is_begun, locked
from topicscope.commands.options import INLINE, POSITIONAL, parse
from topicscope.commands.terminal import console, log_to_terminal, print_json, progress_bar
from topicscope.errors import InputError, listed, nearest, path_of
from topicscope.precision import device_named, usable_precision
from topicscope.probing.folder import ProbeFolder
from topicscope.probing.settings import Machine, ProbeSettings, name_of
from topicscope.records import (
    Comparison,
    CorpusRow,
    PairedRow,
    ProbeRow,
    TopicWord,
    WordMap,
    flat_row,
    frame_of,
    table_html,
)
from topicscope.reporting.answer import (
    MEASURES,
    answers,
    labels_of,
    latex,
    model_label,
    paired_answers,
    probe_notes,
    word_notes,
)
from topicscope.reporting.rounding import comparison_text, is_significant
from topicscope.settings.toml import nested
from topicscope.settings.values import convert, hints, made, sections_of
from topicscope.store import write_atomically
from topicscope.text.corpora import check_exists
from topicscope.work import Report

if TYPE_CHECKING:
    from topicscope.probing.models import Subject
    from topicscope.probing.study import ModelStudy

SIGNS = (
    "*: p < 0.05 by a two-sided permutation test over words, not corrected; the interval is over articles "
    "(attention) or topics and words (embeddings), so the two may differ. Δ: same minus different [95 % interval], "
    "where the interval of the denominator is not above 0. –: no pair to average over."
)

DESCRIPTION = """Topic structure in pretrained transformers, on any corpus: are words of one topic (found by LDA) more
alike in the embeddings, and do they attend to each other more? Each number has a 95 % interval and a test.

A model is "minilm" (packaged, works offline), a folder, or a name on the Hugging Face hub; "random:" before it means
the same architecture untrained. The command writes probe.json, probe.csv, topics.csv and figures; run again with the
same --out, it does what is missing, and models may be added.

examples:
  topicscope probe minilm random:minilm --corpus wiki-sample --out probe
  topicscope probe google-bert/bert-base-uncased --corpus enwiki.xml.bz2 --topics 100 --out bert
  topicscope probe ./my-model --corpus texts.jsonl.zst --field body --out mine
  topicscope probe EleutherAI/pythia-70m --revision step1000 step10000 step143000 --out pythia
  topicscope probe ./run --revision checkpoint-500 checkpoint-1000 --out mine
  topicscope probe minilm --show-words frog toad mozart schubert --out words
"""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Which checkpoints are probed, what is compared, and what names and words are shown."""

    revision: tuple[str, ...] = ()
    """Checkpoints of one model, in the order of training: revisions on the hub, or folders within a local one."""

    show_words: tuple[str, ...] = ()
    """Words for the heat map of cosines, Figure 3; by default the paper's nine."""

    against: str | None = None
    """The model that all others are compared with, on the same passages; by default the first one."""

    label: tuple[str, ...] = ()
    """What tables and figures call the models, in their order, instead of names and paths."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command."""

    models: Annotated[tuple[str, ...], POSITIONAL]
    """Models: minilm, a folder, a name on the hub, or one of these after random:."""

    out: Path = Path("probe")
    """Where results and finished work go."""

    shown: Annotated[Shown, INLINE] = Shown()
    study: Annotated[ProbeSettings, INLINE] = ProbeSettings()
    machine: Annotated[Machine, INLINE] = Machine()

    quiet: bool = False
    """No progress bar."""

    json: bool = False
    """Print the rows of probe.json on standard output, and nothing else."""


def main(words: list[str]) -> int:
    """Parse, run, print Table 1's layout."""
    options = parse(Options, words, command="probe", description=DESCRIPTION)
    log_to_terminal(quiet=options.quiet)
    with progress_bar("probing", quiet=options.quiet or options.json, lines=True) as report:
        result = _probe(options.models, options, report)
    if options.json:
        print_json(msgspec.to_builtins(result.rows))
        for note in result.notes:
            console(to_errors=True).print(note)
    else:
        print_table(result)
    return 0


@dataclass(frozen=True)
class Probed:
    """What came out."""

    rows: list[ProbeRow] = field(repr=False)
    """Rows of probe.json for the models asked for."""

    figures: list[Path]
    notes: list[str]
    """What a reader should know besides the numbers: the topics' quality, and unreadable parts of the corpus."""

    out: Path = Path()
    comparisons: tuple[PairedRow, ...] = field(default=(), repr=False)
    """Rows of comparisons.json for the models asked for."""

    @property
    def summary(self) -> str:
        """The findings, one paragraph per model, then the rule behind each yes, no or unclear."""
        return "\n".join(answers(self.rows))

    def compare(self, other: "Probed | str", model: str | None = None) -> list[PairedRow]:
        """Paired differences between a model of this probe (by default the first) and another.

        other: a model of this probe, or another probe, whose first model is used. Both must have been measured on the
        same passages and topics.
        """
        own, folder = model or self.rows[0].title, ProbeFolder(self.out)
        if isinstance(other, str):
            return folder.compare(own, other)
        return folder.compare(own, other.rows[0].title, ProbeFolder(other.out))

    def to_frame(self) -> Any:
        """The rows of probe.json as a pandas DataFrame; nested numbers have dotted names, such as ``cosine.ratio``."""
        rows: list[dict[str, Any]] = msgspec.to_builtins(self.rows)
        kept = ({name: value for name, value in row.items() if not isinstance(value, list)} for row in rows)
        return frame_of(map(flat_row, kept))

    def _repr_html_(self) -> str:
        from topicscope.reporting.page.sections import table_row

        columns = ("model", "fraction", "assignment", "embedding", "centred", "cosine", "dot product", "attention")
        cells = [[cells[name] for name in columns] for cells in map(table_row, self.rows)]
        return table_html(columns, cells, f"same- over different-topic averages in {self.out}; * p < 0.05")


def _is_subject(given: object) -> bool:
    return hasattr(given, "embedding_matrix") and hasattr(given, "run")


def probe(
    models: "str | Subject | Sequence[str | Subject]",
    *,
    out: Path | str = "probe",
    report: Report | None = None,
    **options: Any,
) -> Probed:
    """Probe models into a folder. What is finished there is not measured again; models may be added later.

    models: one or several of ``minilm``, folders, names on the Hugging Face hub, or one of these after ``random:``.
    Also anything that offers embeddings, attention and hidden states (``topicscope.probing.models.Subject``) and names
    its ``tokenizer``, as docs/probe.md shows.
    options: those of the command, as ``corpus="texts.jsonl", field="body", topics=50, label=["a", "b"]``.
    """
    given = list(models) if isinstance(models, list | tuple) else [models]
    # What offers no embeddings must be a name.
    subjects: list[Any] = given if any(map(_is_subject, given)) else list(listed(models, "models"))
    known = _keywords(Options)
    for name in options:
        if name not in known:
            near = nearest(name, list(known))
            advice = f"Did you mean {near}?" if near else "See topicscope probe --help."
            raise InputError(f"probe has no option {name}. {advice}")
    # Paths may be strings, and one value stands for a list of one.
    values = {known[name][0]: convert(known[name][1], value, name) for name, value in options.items()}
    default = Options(models=(), out=path_of(out, "out"))
    return _probe(subjects, made(Options, nested(values), default), report)


def _keywords(kind: Any, path: str = "") -> dict[str, tuple[str, Any]]:
    """By the name of each option within a section: its dotted path and its type."""
    keywords: dict[str, tuple[str, Any]] = {}
    for name, hint in hints(kind).items():
        if sections_of(hint):
            keywords |= _keywords(hint, f"{path}{name}.")
        elif path:
            keywords[name] = f"{path}{name}", hint
    return keywords


def _probe(models: Sequence[Any], options: Options, report: Report | None) -> Probed:
    _check(models, options)
    shown, settings, folder = options.shown, options.study, ProbeFolder(options.out)
    if report:
        report(0, 1, f"loading {', '.join(map(name_of, models))}, then reading {settings.text.corpus}")
    from topicscope.probing.study import Ground, measure_models
    from topicscope.reporting.page import write_report

    usable = usable_precision(settings.dtype, device_named(options.machine.device).type)
    settings = replace(settings, dtype=usable)  # type: ignore[arg-type]
    corpus = settings.text.open()
    ground = Ground(settings, corpus, options.machine, folder.work, report=report)
    # This refuses what is wrong before the folder is made.
    measured = measure_models(models, ground, revisions=shown.revision, show_words=shown.show_words, labels=shown.label)
    with folder.opened(settings.record(corpus), locked(folder.path)):
        finished: list[ModelStudy] = []
        for model in measured:
            finished = sorted([*finished, model], key=lambda model: model.place)
            folder.keep(model.measured)
            # This is done after every model, so that it is kept if the next one fails.
            folder.add(ProbeRow, [row for model in finished for row in model.rows])
        result = _written(folder, finished, shown.against, report)
        write_report([folder.path], folder.path / "report.html")
        return result


def _check(models: Sequence[Any], options: Options) -> None:
    """What is wrong with names and paths is refused before torch is loaded."""
    names, shown = list(map(name_of, models)), options.shown
    if not names:
        raise InputError("No model is given: give minilm, a folder or a name on the Hugging Face hub.")
    if shown.revision and len(names) != 1:
        raise InputError(f"--revision goes with one model, and {len(names)} are given: probe them one by one.")
    if len(set(names)) < len(names) or len(set(shown.revision)) < len(shown.revision):
        raise InputError("A model or revision is given twice: name each once.")
    if shown.label and len(shown.label) != len(names) * max(len(shown.revision), 1):
        raise InputError(f"--label names {len(shown.label)} models, and others are given: label each, in order.")
    if shown.against is not None and shown.against not in names:
        raise InputError(f"--against {shown.against} is none of the models given: name one of {', '.join(names)}.")
    is_begun(options.out, "probe-settings.json", what="study", command="probe")
    check_exists(options.study.text.corpus)


def _written(
    folder: ProbeFolder, finished: "Sequence[ModelStudy]", against: str | None, report: Report | None
) -> Probed:
    """Write everything that is about all models, whenever they were probed."""
    from topicscope.probing.topics import save_topics
    from topicscope.reporting.figures.probe import draw

    studies = list(dict.fromkeys(model.study for model in finished))
    folder.add(TopicWord, [row for study in studies for row in study.topic_words()])
    corpora = [study.corpus_row() for study in studies]
    folder.add(CorpusRow, corpora)
    for study in studies:
        if study.fits:
            save_topics(study.fits, folder.path / f"topics-{study.name}")
    maps = [model.shown for model in finished]
    every = folder.add(WordMap, maps)
    comparisons = folder.comparisons([model.measured.model for model in finished], against)
    if comparisons:
        folder.add(PairedRow, comparisons)
    if report:
        report(0, 1, "figures and page")
    all_rows = folder.read(ProbeRow)
    write_atomically(folder.path / "probe.tex", latex(all_rows))
    figures = draw(all_rows, every, folder.path / "figures")
    rows = [row for model in finished for row in model.rows]
    return Probed(rows, figures, [*probe_notes(corpora, rows), *word_notes(maps)], folder.path, tuple(comparisons))


def print_table(result: Probed) -> None:
    """The answer; then a line per model, threshold, assignment and embedding, notes, and what was written."""
    for line in (*answers(result.rows), *paired_answers(result.comparisons, labels_of(result.rows))):
        console().print(line, soft_wrap=True)
    table = Table(title="Average over same-topic pairs / average over different-topic pairs [95 % interval]")
    for name in ("model", "threshold", "topics per word", "embedding", *MEASURES.values()):
        # Names are folded, not cut: two long paths must not look alike.
        table.add_column(name, no_wrap=name not in ("model", *MEASURES.values()), overflow="fold")
    for row in (row for row in result.rows if not row.centred):
        threshold = "own" if row.fraction is None else f"{row.fraction:g}"
        cells = [ratio_text(getattr(row, name)) for name in MEASURES]
        # Attention does not depend on the embedding, so it is printed once.
        cells[-1] = cells[-1] if row.embedding == "matrix" else ""
        table.add_row(model_label(row), threshold, row.assignment, row.embedding, *cells)
    console().print(table)
    for line in (SIGNS, *result.notes):
        console().print(line, soft_wrap=True)
    console().print(
        f"written: {result.out}/report.html, probe.json, probe.csv, probe.tex, heads.csv, topics.csv, corpus.json, "
        f"{'comparisons.json, ' if result.comparisons else ''}words.json, figures/ ({len(result.figures)} files)",
        soft_wrap=True,
    )


def ratio_text(comparison: Comparison) -> str:
    """The ratio with its interval, or the difference where there is none; a star if distinguished from chance."""
    return comparison_text(comparison, mark="*" if is_significant(comparison) else "")
