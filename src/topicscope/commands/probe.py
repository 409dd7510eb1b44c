"""``topicscope probe``: topic structure in pretrained models, on any corpus, into a folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from topicscope import scale
from topicscope.commands.probe_figures import draw
from topicscope.commands.probe_folder import ProbeFolder, Row
from topicscope.probe.ground import corpus_row, topic_rows
from topicscope.probe.run import Finished, measure_models
from topicscope.probe.settings import Machine, ProbeSettings
from topicscope.probe.sources import check_names
from topicscope.probe.topics import save_topics
from topicscope.report.page import write_report
from topicscope.report.probe_notes import probe_notes

DEFAULTS = ProbeSettings()
MACHINE = Machine()


@dataclass(frozen=True)
class Probed:
    """What came out."""

    rows: list[Row]
    """Rows of probe.json, of the models asked for."""

    figures: list[Path]
    notes: list[str]
    """What should be known beside the numbers: the topics' quality, what could not be read of the corpus."""

    out: Path = Path()

    def _repr_html_(self) -> str:
        from topicscope.report.notebook import probe_html

        return probe_html(self.rows, str(self.out))


def probe(
    models: Sequence[str],
    *,
    out: Path,
    settings: ProbeSettings = DEFAULTS,
    machine: Machine = MACHINE,
    revisions: Sequence[str] = (),
    show_words: Sequence[str] = (),
    report: scale.Report | None = None,
) -> Probed:
    """Probe models into a folder. What is finished there is not measured again; models may be added later.

    models: ``minilm``, folders, names of the Hugging Face hub, or ``random:`` and one of these.
    revisions: checkpoints of the one model given, in the order of training.
    show_words: words of the heat map; the paper's nine if none are given.
    """
    check_names(models, revisions)
    folder = ProbeFolder(out)
    corpus = settings.text.open()
    with folder.opened(settings.table(corpus)):
        finished: list[Finished] = []
        for each in measure_models(
            models,
            settings=settings,
            machine=machine,
            work=folder.work,
            corpus=corpus,
            revisions=revisions,
            show_words=show_words,
            report=report,
        ):
            finished.append(each)
            # In the order given, not of completion: checkpoints are in the order of training.
            finished.sort(key=lambda one: _place(one, models, revisions))
            rows = [row for one in finished for row in one.rows]
            # After every model: what is finished is kept if the next one fails.
            folder.write(rows)
        grounds = list({id(each.ground): each.ground for each in finished}.values())
        folder.write_topics([row for ground in grounds for row in topic_rows(ground)])
        corpora = [corpus_row(ground) for ground in grounds]
        folder.write_corpora(corpora)
        for ground in grounds:
            if ground.fits:
                kept = out / f"topics-{ground.name}"
                kept.mkdir(exist_ok=True)
                save_topics(ground.fits, kept)
        folder.write_words([_word_map(each) for each in finished])
        if report:
            report(0, 1, "figures and page")
        # Of all models that the folder has, whenever they were probed.
        figures = draw(folder.rows(), folder.words(), folder.figures)
        write_report([out], out / "report.html")
        return Probed(rows, figures, probe_notes(corpora, rows), out)


def _place(finished: Finished, models: Sequence[str], revisions: Sequence[str]) -> tuple[int, int]:
    source = finished.target.source
    return models.index(source.name), revisions.index(source.revision) if revisions else 0


def _word_map(finished: Finished) -> Row:
    source, shown = finished.target.source, finished.shown
    name = f"{source.name} {source.revision}".strip()
    return {"model": name, "words": list(shown.words), "cosine": shown.cosines.tolist()}


# The public name: ``topicscope.probe`` is the package.
probe_models = probe
