"""``topicscope probe``: topic structure in pretrained models."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from topicscope.cli.main import parse
from topicscope.cli.probe_table import print_table
from topicscope.cli.terminal import console, log_to_terminal, print_json, progress_bar
from topicscope.commands.probe_checks import check_request
from topicscope.probe.settings import (
    CorpusSettings,
    Machine,
    MeasureSettings,
    Precision,
    ProbeSettings,
    TopicOptions,
)

DESCRIPTION = """Topic structure in pretrained transformers, on any corpus: are words of one topic (found by LDA) more
alike in the embeddings, and do they attend to each other more? Each number has a 95 % interval and a test.

A model is "minilm" (packaged, works offline), a folder, a name of the Hugging Face hub, or one of these after
"random:", the same architecture untrained. Writes probe.json, probe.csv, topics.csv and figures; run again with the
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

    models: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="MODEL ...")]
    """Models: minilm, a folder, a hub's name, or random: and one of these."""

    out: Path = Path("probe")
    """Where results and finished work go."""

    revision: tuple[str, ...] = ()
    """Checkpoints of one model, in the order of training: revisions on the hub, or folders within a local one."""

    show_words: tuple[str, ...] = ()
    """Words for the heat map of cosines, Figure 3; the paper's nine if not given."""

    text: Annotated[CorpusSettings, tyro.conf.arg(name="")] = CorpusSettings()
    topics: Annotated[TopicOptions, tyro.conf.arg(name="")] = TopicOptions()
    measures: Annotated[MeasureSettings, tyro.conf.arg(name="")] = MeasureSettings()
    machine: Annotated[Machine, tyro.conf.arg(name="")] = Machine()

    dtype: Precision = "float32"
    """Precision that models run in."""

    seed: int = 0
    """Draws untrained weights, bootstrap replicates and permutations, and starts LDA."""

    quiet: bool = False
    """No progress bar."""

    json: bool = False
    """Print the rows of probe.json on standard output, and nothing else."""


def main(words: list[str]) -> int:
    """Parse, run, print Table 1's layout."""
    # Before NumPy is loaded: this process measures beside the workers, and must not take their cores.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    options = parse(lambda: tyro.cli(Options, args=words, prog="topicscope probe", description=DESCRIPTION))
    settings = ProbeSettings(
        text=options.text, topics=options.topics, measures=options.measures, dtype=options.dtype, seed=options.seed
    )
    check_request(options.models, out=options.out, settings=settings, revisions=options.revision)
    log_to_terminal(quiet=options.quiet)
    from topicscope.commands.probe import probe

    with progress_bar("probing", quiet=options.quiet or options.json) as report:
        result = probe(
            options.models,
            out=options.out,
            settings=settings,
            machine=options.machine,
            revisions=options.revision,
            show_words=options.show_words,
            report=report,
        )
    if options.json:
        print_json(result.rows)
        for note in result.notes:
            console(to_errors=True).print(note)
    else:
        print_table(result, options.out)
    return 0
