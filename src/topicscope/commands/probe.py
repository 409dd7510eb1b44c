"""``topicscope probe``: topic structure in pretrained models, on any corpus, into a folder.

This file has the command's options, the function :func:`probe` behind it, the folder that it writes, its figures, and
the table that it prints. Torch takes seconds to load, so it is loaded only after the options were checked.
"""

import contextlib
import hashlib
import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table

from topicscope import scale
from topicscope.commands.folders import is_begun, locked
from topicscope.commands.options import INLINE, POSITIONAL, parse
from topicscope.commands.terminal import console, log_to_terminal, print_json, progress_bar
from topicscope.errors import InputError, UnreadableError, listed, path_of
from topicscope.files import (
    Row,
    as_before_if_refused,
    flat_row,
    frame_of,
    read_text,
    table_rows_of,
    table_text,
    write_atomically,
)
from topicscope.probing.settings import (
    MEASURES,
    CorpusSettings,
    Machine,
    MeasureSettings,
    Precision,
    ProbeSettings,
    TopicOptions,
    check_names,
)
from topicscope.records import keepable_rows, probe_row, read_probe_settings, word_map
from topicscope.reporting.answer import answering, answers, labels_of, latex, model_label, paired_answers
from topicscope.reporting.rounding import comparison_text, is_significant
from topicscope.settings.toml import flat
from topicscope.text.corpora import check_exists

if TYPE_CHECKING:
    from topicscope.probing.models import Subject
    from topicscope.probing.study import Finished

logger = logging.getLogger(__name__)

DEFAULTS, MACHINE = ProbeSettings(), Machine()
# What identifies a row of each file, with its threshold; rows with the same values are replaced.
KEYS = {
    "probe.json": ("model", "revision"),
    "corpus.json": ("tokenizer", "length"),
    "words.json": ("model",),
    "comparisons.json": ("model", "against"),
}
# Columns of heads.csv for each head.
OF_HEADS = ("ratio", "low", "high", "p", "p_single", "q")
# Options that are paths.
PATHS = ("topics_from", "word_topics")
# Too large for a table, or nested; these are in probe.json alone.
ONLY_JSON = ("attention_by_layer", "attention_by_layer_head", "hidden_by_layer", "by_topic", "sink")
STAR = (
    "*: p < 0.05 by a two-sided permutation test over words, not corrected; the interval is over articles "
    "(attention) or topics and words (embeddings), so the two may differ."
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
class Options:
    """Options of the command."""

    models: Annotated[tuple[str, ...], POSITIONAL]
    """Models: minilm, a folder, a name on the hub, or one of these after random:."""

    out: Path = Path("probe")
    """Where results and finished work go."""

    revision: tuple[str, ...] = ()
    """Checkpoints of one model, in the order of training: revisions on the hub, or folders within a local one."""

    show_words: tuple[str, ...] = ()
    """Words for the heat map of cosines, Figure 3; by default the paper's nine."""

    against: str | None = None
    """The model that all others are compared with, on the same passages; by default the first one."""

    label: tuple[str, ...] = ()
    """What tables and figures call the models, in their order, instead of names and paths."""

    text: Annotated[CorpusSettings, INLINE] = CorpusSettings()
    topics: Annotated[TopicOptions, INLINE] = TopicOptions()
    measures: Annotated[MeasureSettings, INLINE] = MeasureSettings()
    machine: Annotated[Machine, INLINE] = Machine()

    dtype: Precision = "float32"
    """The precision in which models run."""

    seed: int = 0
    """The seed of untrained weights, bootstrap replicates, permutations and LDA."""

    quiet: bool = False
    """No progress bar."""

    json: bool = False
    """Print the rows of probe.json on standard output, and nothing else."""


def main(words: list[str]) -> int:
    """Parse, run, print Table 1's layout."""
    options = parse(Options, words, command="probe", description=DESCRIPTION)
    settings = ProbeSettings(
        text=options.text, topics=options.topics, measures=options.measures, dtype=options.dtype, seed=options.seed
    )
    log_to_terminal(quiet=options.quiet)
    with progress_bar("probing", quiet=options.quiet or options.json, lines=True) as report:
        result = probe(
            options.models,
            out=options.out,
            settings=settings,
            machine=options.machine,
            revisions=options.revision,
            show_words=options.show_words,
            against=options.against,
            labels=options.label,
            report=report,
        )
    if options.json:
        print_json(result.rows)
        for note in result.notes:
            console(to_errors=True).print(note)
    else:
        print_table(result, options.out)
    return 0


@dataclass(frozen=True)
class Probed:
    """What came out."""

    rows: list[Row] = field(repr=False)
    """Rows of probe.json for the models asked for."""

    figures: list[Path]
    notes: list[str]
    """What a reader should know besides the numbers: the topics' quality, and unreadable parts of the corpus."""

    out: Path = Path()
    comparisons: tuple[Row, ...] = field(default=(), repr=False)
    """Rows of comparisons.json for the models asked for."""

    @property
    def summary(self) -> str:
        """The findings, one paragraph per model, then the rule behind each yes, no or unclear."""
        return "\n".join(answers(self.rows))

    @property
    def by_layer(self) -> dict[str, list[Row]]:
        """Each model's hidden states layer by layer, at the largest threshold."""
        return {model_label(row): row.get("hidden_by_layer") or [] for row in answering(self.rows)}

    @property
    def by_topic(self) -> dict[str, list[Row]]:
        """Each model's topics one by one, at the largest threshold."""
        return {model_label(row): row.get("by_topic") or [] for row in answering(self.rows)}

    def compare(self, other: "Probed | str", model: str | None = None) -> list[Row]:
        """Paired differences between a model of this probe (by default the first) and another.

        other: a model of this probe, or another probe, whose first model is used. Both must have been measured on the
        same passages and topics.
        """
        mine = model or self._first
        theirs, out = (other, self.out) if isinstance(other, str) else (other._first, other.out)
        paths = []
        for title, folder in ((mine, ProbeFolder(self.out)), (theirs, ProbeFolder(out))):
            if title not in (titles := folder.titles):
                known = ", ".join(titles)
                raise InputError(f"{title} was not probed into {folder.path}: name one of {known}, or probe it there.")
            paths.append(folder.compared(title))
        return compare_stored(*paths)

    @property
    def _first(self) -> str:
        """The first model, with its revision if it has one."""
        return next(iter(labels_of(self.rows)))

    def to_frame(self) -> Any:
        """The rows of probe.json as a pandas DataFrame; nested numbers have dotted names, such as ``cosine.ratio``."""
        few = [{name: value for name, value in row.items() if not isinstance(value, list)} for row in self.rows]
        return frame_of(map(flat_row, few))

    def _repr_html_(self) -> str:
        from topicscope.reporting.notebook import probe_html

        return probe_html(self.rows, str(self.out))


def compare_stored(one: Path, other: Path) -> list[Row]:
    """Rows of comparisons.json from two models' arrays; refused if passages or topics differ."""
    from topicscope.probing.rows import unpacked
    from topicscope.probing.statistics.comparison import compared_models

    (mine, arrays), (theirs, others) = unpacked(one), unpacked(other)
    if mine["plan"] != theirs["plan"]:
        raise InputError(
            f"{mine['model']} and {theirs['model']} were not measured on the same passages and topics, so they "
            "cannot be compared: probe them with one tokenizer, corpus and set of options."
        )
    names = {"model": mine["model"], "against": theirs["model"]}
    groups = [(fraction, assignment) for fraction, assignment in mine["groups"]]
    return [names | row for row in compared_models(arrays, others, groups)]


def settings_of(options: Mapping[str, Any], settings: ProbeSettings, machine: Machine) -> tuple[ProbeSettings, Machine]:
    """Settings and machine from options of the command given as keywords; paths may be strings."""
    parts: dict[str, Any] = {
        "text": settings.text,
        "topics": settings.topics,
        "measures": settings.measures,
        "machine": machine,
    }
    known = {field.name: part for part, each in parts.items() for field in fields(each)}
    left = {name: value for name, value in options.items() if name not in known}
    if unknown := sorted(left.keys() - {"dtype", "seed"}):
        allowed = ", ".join(sorted({*known, "dtype", "seed", *signature(probe).parameters} - {"models", "options"}))
        raise InputError(f"{unknown[0]} is no option of probe: give some of {allowed}.")
    for name, value in options.items():
        if name in known:
            given = Path(value) if name in PATHS and value is not None else value
            given = str(given) if name == "corpus" else tuple(given) if isinstance(given, list) else given
            parts[known[name]] = replace(parts[known[name]], **{name: given})
    found = parts.pop("machine")
    return replace(settings, **parts, **left), found


def _is_subject(given: object) -> bool:
    return hasattr(given, "embedding_matrix") and hasattr(given, "run")


def probe(
    models: "str | Subject | Sequence[str | Subject]",
    *,
    out: Path | str = "probe",
    settings: ProbeSettings = DEFAULTS,
    machine: Machine = MACHINE,
    revisions: Sequence[str] | str = (),
    show_words: Sequence[str] | str = (),
    against: str | None = None,
    labels: Sequence[str] | str = (),
    report: scale.Report | None = None,
    **options: Any,
) -> Probed:
    """Probe models into a folder. What is finished there is not measured again; models may be added later.

    models: one or several of ``minilm``, folders, names on the Hugging Face hub, or one of these after ``random:``.
    Also anything that offers embeddings, attention and hidden states (``topicscope.probing.models.Subject``) and names
    its ``tokenizer``, as docs/probe.md shows.
    revisions: checkpoints of the one model given, in the order of training.
    show_words: words of the heat map; by default the paper's nine.
    against: the model that the others are compared with; by default the first.
    labels: what tables and figures call the models, in their order.
    options: those of the command, as ``corpus="texts.jsonl", field="body", topics=50``.
    """
    given: list[Any] = list(models) if isinstance(models, list | tuple) else [models]
    # What offers no embeddings must be a name.
    subjects: list[Any] = given if any(map(_is_subject, given)) else list(listed(models, "models"))
    names = [str(getattr(each, "name", type(each).__name__)) if _is_subject(each) else str(each) for each in subjects]
    revisions, show_words, labels = (
        listed(each, name) for each, name in ((revisions, "revisions"), (show_words, "show_words"), (labels, "labels"))
    )
    out = path_of(out, "out")
    settings, machine = settings_of(options, settings, machine)
    check_names(names, revisions)
    if labels and len(labels) != len(names) * max(len(revisions), 1):
        raise InputError(f"--label names {len(labels)} models, and there are others: give a label for each, in order.")
    if against is not None and against not in names:
        raise InputError(f"--against {against} is none of the models given: name one of {', '.join(names)}.")
    folder = ProbeFolder(out)
    folder.check()
    # Missing paths, and tables of other kinds, are refused before torch is loaded.
    check_exists(settings.text.corpus)
    settings.topics.check_files()
    if settings.topics.word_topics:
        from topicscope.probing.topics import read_pairs

        read_pairs(settings.topics.word_topics)
    if report:
        report(0, 1, f"loading {', '.join(names)}, then reading {settings.text.corpus}")
    from topicscope.probing.study import measure_models, workers_ready
    from topicscope.probing.topics import save_topics
    from topicscope.reporting.figures.probe import draw
    from topicscope.reporting.page import write_report
    from topicscope.reporting.page.probes import probe_notes, word_notes

    with contextlib.ExitStack() as opened:
        if not any(map(_is_subject, subjects)):
            opened.enter_context(workers_ready(machine))
        corpus = settings.text.open()
        # This refuses what is wrong before the folder is made.
        measured = measure_models(
            subjects,
            settings=settings,
            machine=machine,
            work=folder.work,
            corpus=corpus,
            revisions=revisions,
            show_words=show_words,
            report=report,
        )
        asked = settings.table(corpus)
        opened.enter_context(folder.opened(asked))
        # The settings come first: they identify a folder that was begun.
        write_atomically(folder.settings, json.dumps(asked, indent=2) + "\n")
        finished: list[Finished] = []
        for each in measured:
            finished.append(each)
            # Rows are in the order given, not of completion: checkpoints are in the order of training.
            finished.sort(key=lambda one: (names.index(one.model.name), [*revisions, ""].index(one.model.revision)))
            if labels:
                named = [(name, revision) for name in names for revision in (revisions or ("",))]
                for one in finished:
                    place = named.index((one.model.name, one.model.revision))
                    one.rows[:] = [row | {"label": labels[place]} for row in one.rows]
                    one.shown["label"] = labels[place]
            rows = [row for one in finished for row in one.rows]
            (out / "compared").mkdir(exist_ok=True)
            write_atomically(folder.compared(each.model.title), each.comparable())
            # This is done after every model, so that it is kept if the next one fails.
            folder.write("probe.json", rows)
        studies = list(dict.fromkeys(each.study for each in finished))
        folder.write_topics([row for study in studies for row in study.topic_rows()])
        corpora = [study.corpus_row() for study in studies]
        folder.write("corpus.json", corpora)
        for study in studies:
            if study.fits:
                kept = out / f"topics-{study.name}"
                kept.mkdir(exist_ok=True)
                save_topics(study.fits, kept)
        folder.write("words.json", [each.shown for each in finished], indent=None)
        # Checkpoints are compared with the first of them, models with the one that is named.
        comparisons = folder.comparisons([one.model.title for one in finished], against)
        if comparisons:
            folder.write("comparisons.json", comparisons, indent=None)
        if report:
            report(0, 1, "figures and page")
        # For all models that the folder has, whenever they were probed.
        figures = draw(folder.rows(), folder.words(), out / "figures")
        write_report([out], out / "report.html")
        notes = [*probe_notes(corpora, rows), *word_notes([each.shown for each in finished])]
        return Probed(rows, figures, notes, out, tuple(comparisons))


class ProbeFolder:
    """Rows of all models that were probed with one set of settings."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.work = path / "work"
        self.settings = path / "probe-settings.json"

    @contextlib.contextmanager
    def opened(self, settings: Row) -> Iterator[None]:
        """Make the folder, or go on in it, with other processes kept out; refuse one that holds something else.

        What is refused before anything was measured leaves the folder as it was.
        """
        # Refused before anything is made, and checked again under the lock: another command may have begun meanwhile.
        self.check(settings)
        with as_before_if_refused(self.path, locked(self.path), self._measured):
            self.check(settings)
            yield

    def _measured(self) -> bool:
        return (self.path / "probe.json").exists() or any((self.work / "measured").glob("*"))

    def check(self, settings: Row | None = None) -> None:
        """Refuse a file, a folder of something else, and one in which other settings than these were measured.

        A study that was stopped before anything was measured leaves the folder to another: passages and topics in it
        are found by their content.
        """
        begun = is_begun(self.path, self.settings.name, what="study", command="probe")
        if settings is None or not begun or not self._measured():
            return
        stored = flat(read_probe_settings(self.settings))
        here = flat(json.loads(json.dumps(settings)))
        found = [
            f"--{name.split('.')[-1].replace('_', '-')} {_said(stored.get(name))} there, {_said(here[name])} here"
            for name in here
            if stored.get(name) != here[name] and not name.startswith("topics.fractions")
        ]
        if found:
            raise InputError(
                f"--out {self.path} holds a study of other settings ({'; '.join(found)}): give those, or another --out."
            )

    def compared(self, title: str) -> Path:
        """The file with the arrays by which a model is compared with others."""
        name = hashlib.sha256(title.encode()).hexdigest()[:16]
        return self.path / "compared" / f"{name}.safetensors"

    @property
    def titles(self) -> list[str]:
        """Names and revisions of the models in it that can be compared."""
        found = list(labels_of(self.rows()))
        return [title for title in found if self.compared(title).is_file()]

    def comparisons(self, titles: Sequence[str], against: str | None) -> list[Row]:
        """Compare models that were probed together with the first of them, or with that of ``against``.

        The first itself is compared with the first model that the folder had before. Only models that were measured on
        the same passages and topics are compared, and no two of them in both directions.
        """
        from topicscope.probing.rows import said_of

        plans = {title: said_of(self.compared(title)).get("plan") for title in self.titles}
        known = [_of_keys(row, KEYS["comparisons.json"]) for row in self._well_formed("comparisons.json")]
        named = [title for title in titles if against and f"{title} ".startswith(f"{against} ")]
        found = []
        for title in titles:
            alike = [each for each, plan in plans.items() if plan is not None and plan == plans.get(title)]
            base = next((each for each in named[:1] or titles if each in alike), title)
            if base == title and not named:
                base = next((each for each in alike if each == title or (each, title) not in known), title)
            if base != title:
                found += compare_stored(self.compared(title), self.compared(base))
        return found

    def rows(self) -> list[Row]:
        """What probe.json holds; a row of another shape stays there, and is left out here."""
        return self._well_formed("probe.json", probe_row)

    def words(self) -> list[Row]:
        """What words.json holds, likewise."""
        return self._well_formed("words.json", word_map)

    def _well_formed(self, name: str, check: Callable[[Row, Path], Row] = lambda row, path: row) -> list[Row]:
        found = []
        with contextlib.suppress(UnreadableError):
            for row in keepable_rows(self.path / name, *KEYS[name]):
                with contextlib.suppress(UnreadableError):
                    found.append(check(row, self.path / name))
        return found

    def write(self, name: str, rows: Sequence[Row], *, indent: int | None = 1) -> None:
        """Write a JSON file with these rows, after other rows already there.

        probe.json comes with probe.csv, heads.csv and probe.tex. An existing file that cannot be read is set aside,
        with a warning.
        """
        path, keys = self.path / name, KEYS[name]
        before: list[Row] = []
        try:
            before = keepable_rows(path, *keys)
        except UnreadableError as error:
            if path.is_file():
                path.replace(path.with_name(f"{name}.damaged"))
                logger.warning("%s It is kept as %s.damaged, and %s is begun anew.", error, name, name)
        # Rows of other thresholds stay; those of one model stand together, by threshold.
        new = [[row.get(key) for key in (*keys, "fraction")] for row in rows]
        kept = [row for row in before if [row.get(key) for key in (*keys, "fraction")] not in new]
        every = [*kept, *rows]
        last = {_of_keys(row, keys): place for place, row in enumerate(every)}
        every.sort(key=lambda row: (last[_of_keys(row, keys)], _threshold(row)))
        write_atomically(path, json.dumps(every, indent=indent, ensure_ascii=False, allow_nan=False) + "\n")
        if name == "probe.json":
            # Nested numbers under names such as attention.ratio.
            flat_rows = [flat({key: row[key] for key in row if _has_columns(key, row[key])}) for row in every]
            self._write_table("probe.csv", flat_rows)
            whole = self.rows()
            self._write_table("heads.csv", [head for row in whole for head in _heads(row)])
            write_atomically(self.path / "probe.tex", latex(whole))

    def write_topics(self, rows: Sequence[Row]) -> None:
        """Write topics.csv with these rows, and the complete rows there of other tokenizers, lengths and thresholds."""
        names, before = ("tokenizer", "length", "fraction"), list[Row]()
        with contextlib.suppress(UnreadableError):
            text = read_text(self.path / "topics.csv", "run the probe again")
            before = [row for row in table_rows_of(text) if None not in (*row, *row.values())]
        # As they are read: the user's own topics have an empty threshold.
        new = {tuple("" if row[name] is None else str(row[name]) for name in names) for row in rows}
        keys = [tuple(row.get(name) for name in names) for row in before]
        kept = [row for key, row in zip(keys, before, strict=True) if key not in new and None not in key]
        self._write_table("topics.csv", [*kept, *rows])

    def _write_table(self, name: str, rows: Sequence[Row]) -> None:
        write_atomically(self.path / name, table_text(rows))


def _said(value: Any) -> str:
    return "not given" if value in (None, []) else str(value)


def _of_keys(row: Row, keys: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(row.get(key)) for key in keys)


def _threshold(row: Row) -> float:
    found = row.get("fraction")
    return float(found) if isinstance(found, int | float) else 0.0


def _has_columns(name: str, value: Any) -> bool:
    """Whether a part of a row goes into probe.csv; the largest threshold is not compared with a larger one."""
    return name not in ONLY_JSON and (name, value) != ("over_largest_threshold", None)


def _heads(row: Row) -> Iterator[Row]:
    """Rows of heads.csv from a row of probe.json; heads do not depend on the embedding."""
    if row.get("embedding") != "matrix" or row.get("centred"):
        return
    sink = row.get("sink")
    for layer, heads in enumerate(row.get("attention_by_layer_head") or ()):
        for place, head in enumerate(heads):
            matched = head.get("matched") or {}
            yield {
                **{name: row.get(name) for name in ("model", "revision", "fraction", "assignment")},
                "layer": layer + 1,
                "head": place + 1,
                **{name: head.get(name) for name in OF_HEADS},
                **{f"distance_matched_{name}": matched.get(name) for name in ("ratio", "low", "high")},
                "sink": sink[layer][place] if sink else None,
                "examples": "; ".join(head.get("examples") or ()),
            }


def _same_embedding(row: Row, rows: Sequence[Row]) -> bool:
    """Whether the embedding layer's output has the same numbers as the matrix, as in models that add nothing to it."""
    alike = [each for each in rows if _labelling(each) == _labelling(row) and each["embedding"] == "matrix"]
    averages = [(name, side) for name in ("cosine", "dot") for side in ("same", "different")]
    return row["embedding"] == "layer" and any(
        all(_close(each[name].get(side), row[name].get(side)) for name, side in averages) for each in alike
    )


def _close(one: float | None, other: float | None) -> bool:
    """Whether two averages are there and equal up to rounding."""
    return one is not None and other is not None and math.isclose(one, other, rel_tol=1e-6)


def print_table(result: Probed, out: Path) -> None:
    """The answer; then a line per model, threshold, assignment and embedding, notes, and what was written."""
    for line in (*answers(result.rows), *paired_answers(result.comparisons, labels_of(result.rows))):
        console().print(line, soft_wrap=True)
    table = Table(title="Average over same-topic pairs / average over different-topic pairs [95 % interval]")
    for name in ("model", "threshold", "topics per word", "embedding", "cosine", "dot product", "attention"):
        # Names are folded, not cut: two long paths must not look alike.
        table.add_column(name, no_wrap=name not in ("model", "cosine", "dot product", "attention"), overflow="fold")
    every = [row for row in result.rows if not row["centred"]]
    rows = [row for row in every if not _same_embedding(row, every)]
    for before, row in zip([None, *rows], rows, strict=False):
        table.add_row(*_cells(row, repeated=before is not None and _labelling(before) == _labelling(row)))
    console().print(table)
    repeated = ["embedding layer: its rows are those of matrix, to which it adds nothing."] * (len(rows) < len(every))
    for line in (*_signs(rows), *repeated, *result.notes):
        console().print(line, soft_wrap=True)
    console().print(
        f"written: {out}/report.html, probe.json, probe.csv, probe.tex, heads.csv, topics.csv, corpus.json, "
        f"{'comparisons.json, ' if result.comparisons else ''}words.json, figures/ "
        f"({len(result.figures)} files)",
        soft_wrap=True,
    )


def _cells(row: Row, *, repeated: bool) -> list[str]:
    threshold = "own" if row["fraction"] is None else f"{row['fraction']:g}"
    shown = [contrast_text(row[name]) for name in MEASURES]
    # Attention does not depend on the embedding, so it is printed once for all of them.
    return [model_label(row), threshold, row["assignment"], row["embedding"], *shown[:2], "" if repeated else shown[2]]


def _labelling(row: Row) -> list[Any]:
    """What attention depends on."""
    return [row[name] for name in ("model", "revision", "fraction", "assignment")]


def contrast_text(contrast: Row) -> str:
    """The ratio with its interval, or the difference where there is none; a star if distinguished from chance."""
    return comparison_text(contrast, mark="*" if is_significant(contrast) else "")


def _signs(rows: list[Row]) -> list[str]:
    """What the signs in the table mean."""
    contrasts = [row[name] for row in rows for name in MEASURES]
    found = []
    if any("*" in contrast_text(each) for each in contrasts):
        found.append(STAR)
    reasons = dict.fromkeys(each["ratio_note"] for each in contrasts if contrast_text(each).startswith("Δ"))
    if reasons:
        why = "; ".join(reason for reason in reasons if reason)
        found.append(f"Δ: same minus different [95 % interval], where there is no ratio ({why}).")
    if any(contrast_text(each) == "–" for each in contrasts):
        found.append("–: no pair to average over.")
    open_ended = [each for each in contrasts if each["ratio"] is not None and None in (each["low"], each["high"])]
    no_interval = dict.fromkeys(each["ratio_note"] for each in open_ended)
    found += [f"no interval, or none with an upper end: {note}." for note in no_interval if note]
    left = max(
        (each.get("replicates_left_out", 0) for each in contrasts if each["difference_low"] is not None), default=0
    )
    if left:
        found.append(
            f"Up to {left:,} bootstrap replicates had no pairs of both kinds, as topics are few, and were left out of "
            "the intervals."
        )
    return found
