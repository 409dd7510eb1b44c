"""What can be wrong with a probe that is asked for, as far as it shows before torch is loaded, which takes seconds."""

from collections.abc import Sequence
from pathlib import Path

from topicscope.commands.probe_folder import ProbeFolder
from topicscope.probe.own_topics import read_pairs
from topicscope.probe.settings import ProbeSettings
from topicscope.probe.sources import check_names
from topicscope.text.corpora import check_exists


def check_request(models: Sequence[str], *, out: Path, settings: ProbeSettings, revisions: Sequence[str] = ()) -> None:
    """Refuse names that do not go together, paths that are not there, a folder or a table of something else."""
    check_names(models, revisions)
    ProbeFolder(out).check()
    check_exists(settings.text.corpus)
    settings.topics.check_files()
    if settings.topics.word_topics:
        read_pairs(settings.topics.word_topics)
