"""The page without a browser: what is in it, what it may load, and what it says of folders that hold little."""

import base64
import hashlib
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from support.page_data import arrays_of, data_of
from support.page_material import NASTY, write_claims, write_everything, write_landscapes, write_probe
from topicscope.errors import InputError
from topicscope.reporting.page import page_html, write_report
from topicscope.reporting.page.claims import section_of
from topicscope.reporting.page.probes import probe_figures
from topicscope.reporting.page.store import Found, find


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_everything(tmp_path_factory.mktemp("everything"))


@pytest.fixture(scope="module")
def everything(written: list[Path]) -> str:
    return page_html(written)


def test_the_page_loads_nothing_and_its_policy_forbids_it(everything: str) -> None:
    loads = re.compile(
        r'(?:src|srcset|poster|data|action)\s*=\s*["\']?\s*(?:https?:)?//|@import|(?<![a-z])url\(', re.IGNORECASE
    )
    assert not loads.search(everything)
    assert loads.search('<img src="https://example.org/x.png">')
    assert not re.search(r"<link\b", everything)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', everything)
    assert policy
    assert policy[1].startswith("default-src &#39;none&#39;")
    assert "http" not in policy[1]
    assert "unsafe-inline" not in policy[1].split("style-src")[0]


def test_the_policy_allows_the_scripts_of_the_page_and_no_other(everything: str) -> None:
    scripts = re.findall(r"<script>(.*?)</script>", everything, re.DOTALL)
    assert len(scripts) == 2, "the page's own, and the playground's"

    def allowed(script: str) -> bool:
        return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in everything

    for script in scripts:
        assert allowed(script)
        assert not allowed(script + " ")


def test_words_from_outside_never_become_markup(everything: str) -> None:
    assert NASTY not in everything
    assert "alert(" in everything
    assert "&lt;script&gt;alert" in everything


def test_arrays_begin_where_the_browser_can_read_them(everything: str) -> None:
    content = arrays_of(everything)
    for entry in data_of(everything)["arrays"]:
        assert entry["at"] % 4 == 0
        assert entry["at"] + entry["bytes"] <= len(content)


def test_an_empty_folder_is_said_to_be_empty(tmp_path: Path) -> None:
    page = page_html([tmp_path])
    assert "is empty" in page
    assert "There is nothing to show yet" in page


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        page_html([tmp_path / "nowhere"])
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        page_html([tmp_path / "file"])


def test_half_finished_claims_say_so(tmp_path: Path) -> None:
    folder = write_claims(tmp_path / "results")
    assert "is not finished" not in page_html([folder])
    (folder / "progress.json").write_text('{"asked": 9, "measured": 3}')
    (folder / "figures" / "figure2.svg").unlink()
    page = page_html([folder])
    assert "3 of 9 claims are measured" in page
    assert "is not drawn yet" in page
    (folder / "claims.json").write_text("[{")
    assert "claims.json cannot be read" in page_html([folder])
    for content in ('{"claims": []}', "[3]"):
        (folder / "claims.json").write_text(content)
        assert "claims.json cannot be read (Expected `" in page_html([folder])


def test_claims_have_numbers_commands_and_places_in_the_paper(tmp_path: Path) -> None:
    page = page_html([write_claims(tmp_path / "results")])
    assert "✓ holds" in page
    assert "✗ fails" in page
    assert "– not run" in page
    assert "[0.85159, 1.3484]" in page
    assert "topicscope reproduce --only figure2/a --preset quick --seeds 3 --seed 0" in page
    assert "1 holds" in page


def test_the_command_of_a_claim_names_the_models_that_were_probed(tmp_path: Path) -> None:
    folder = write_claims(tmp_path / "results")
    settings = {"preset": "quick", "seeds": 3, "seed": 0, "models": ["minilm", "my model"]}
    (folder / "settings.json").write_text(json.dumps(settings))
    assert "--seed 0 --models minilm &#39;my model&#39; --out" in page_html([folder])


def test_a_checkpoint_without_a_measure_leaves_a_gap(tmp_path: Path) -> None:
    rows = json.loads((write_probe(tmp_path / "probe") / "probe.json").read_text())
    revisions = [{**rows[0], "revision": "first", "attention": None}, {**rows[0], "revision": "second"}]
    (figure,) = (each for each in probe_figures(revisions, [], "probe") if "over checkpoints" in each["title"])
    assert {trace["name"]: trace["y"] for trace in figure["traces"]}["attention"] == [None, 1.3]
    # The dot product has no ratio in any of them.
    assert figure["text"].endswith("Not defined: dot product.")


@pytest.mark.parametrize(
    ("source", "section", "anchor"),
    [
        ("Theorem 2", "§5.2", "#S5.SS2"),
        ("§8.1", "§8.1", "#S8.SS1"),
        ("Lemma 1", "§A.1", "#A1.SS1"),
        ("§4", "§4", "#S4"),
    ],
)
def test_sources_lead_to_sections(source: str, section: str, anchor: str) -> None:
    shown, link = section_of(source)
    assert shown == section
    assert link.endswith(anchor)


def test_landscapes_are_in_the_page_at_each_setting_once(tmp_path: Path) -> None:
    folder = write_landscapes(tmp_path / "one")
    shutil.copytree(folder, tmp_path / "two")
    entries = data_of(page_html([tmp_path / "one", tmp_path / "two"]))["landscapes"]
    assert [(each["topics"], each["perDocument"]) for each in entries] == [(10, 2), (20, 2), (20, 4)]
    assert entries[0]["loss"] == pytest.approx(0.94610274, abs=5e-9)


def test_probes_have_ratios_heads_and_topics(tmp_path: Path) -> None:
    page = page_html([write_probe(tmp_path / "probe")])
    assert "2.00 [1.90, 2.10] *" in page
    assert "no ratio; difference 0.5" in page
    figures = data_of(page)["figures"]
    heads = next(figure for figure in figures if "by layer and head" in figure["title"])
    ratios = np.array([[1.0, 1.01, 1.02], [1.1, 1.11, 1.12]])
    assert heads["traces"][0]["z"] == pytest.approx(np.log(ratios) / np.log(2), abs=1e-5)
    assert heads["traces"][0]["text"] == [["*", "", ""], ["*", "", ""]]
    words = next(figure for figure in figures if "Figure 3" in figure["title"])
    assert words["traces"][0]["x"] == ["frog", "&lt;script&gt;"]


@pytest.mark.parametrize("spoilt", ['"text"', "[1]", '[{"other": 1}]'])
def test_a_probe_with_a_spoilt_corpus_json_is_shown_without_it(tmp_path: Path, spoilt: str) -> None:
    folder = write_probe(tmp_path / "probe")
    assert "corpus.json" not in page_html([folder])
    (folder / "corpus.json").write_text(spoilt)
    page = page_html([folder])
    assert "corpus.json cannot be read" in page
    assert "2.00 [1.90, 2.10] *" in page


def test_a_page_of_small_work_is_the_library_and_little_more(tmp_path: Path) -> None:
    folder = write_claims(tmp_path / "results")
    assert write_report([folder], tmp_path / "deep" / "report.html").stat().st_size < 2_500_000


def test_folders_inside_are_found_but_work_is_not_looked_through(tmp_path: Path) -> None:
    write_claims(tmp_path / "results")
    write_claims(tmp_path / "results" / "work" / "old")
    write_probe(tmp_path / "more" / "probe")
    found = find([tmp_path / "results", tmp_path / "more"])
    assert [path.name for path in found.claims] == ["results"]
    assert [path.name for path in found.probes] == ["probe"]
    assert not Found()


# Every kind of folder, and the files that its part of the page is read from.
FILES = {
    "results": ("claims.json", "settings.json", "progress.json", "figures/figure2.csv"),
    "runs/seed-0": (
        "settings.toml",
        "metrics.jsonl",
        "snapshots.safetensors",
        "reference.json",
        "reference.safetensors",
    ),
    "text": ("settings.toml", "metrics.jsonl", "passages/passages.json"),
    "landscapes": ("landscapes.json", "landscapes.npz"),
    "probe": ("probe.json", "topics.csv", "words.json", "corpus.json"),
    "sweep": ("sweep.csv",),
}


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"[]", b"{}", b"[{}]", b"3\n4\n"])
def test_whatever_is_in_a_file_the_page_is_written(written: list[Path], tmp_path: Path, content: bytes) -> None:
    for folder, names in FILES.items():
        for name in names:
            spoilt = tmp_path / folder / name.replace("/", "-")
            shutil.copytree(written[0].parent / folder, spoilt)
            (spoilt / name).parent.mkdir(exist_ok=True)
            (spoilt / name).write_bytes(content)
    assert "cannot be read" in page_html([tmp_path])
