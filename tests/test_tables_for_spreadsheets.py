"""Every table that we write can be opened in a spreadsheet: no text is a formula there, and numbers are numbers.

Text from models, corpora and folders that begins with = + - @, a tab or a carriage return is escaped by a quotation
mark, on disk as on the page; readers take it away again.
"""

import ast
import csv
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import topicscope
from support.page_material import made_claim
from topicscope.probing.folder import ProbeFolder
from topicscope.probing.topics import read_pairs, word_topics
from topicscope.records import TOPICS, TopicWord
from topicscope.reporting.figures import Panel, Series, curves, save_figure
from topicscope.reporting.verdicts import table
from topicscope.store import table_rows_of, table_text

FORMULAS = ("=1+1", "+cmd", "-2+3", "@sum", "\tx", "\rx", "=HYPERLINK(1)", "'=1", "--x")
NUMBERS = ("-1", "+2", "-0.5", "-1e-05", "1e300", "-inf", "nan")
SAFE = ("word", "a=b", "3 - 2", "", "'quoted'", "é", 'say "so"', "a,b", "two\nlines")


def on_disk(text: str) -> list[str]:
    return [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]


def check_harmless(text: str, *given: str) -> None:
    """What a spreadsheet would compute is not there; what was given is, as it was or escaped."""
    cells = on_disk(text)
    for cell in cells:
        assert not cell.startswith(("=", "+", "-", "@", "\t", "\r")) or is_number(cell), repr(cell)
    for each in given:
        assert f"'{each}" in cells, repr(each)


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def test_formulas_are_escaped_in_cells_and_columns_names_and_all_is_read_back_as_it_was() -> None:
    for formula in FORMULAS:
        text = table_text([{"plain": formula, formula: 1.5}])
        check_harmless(text, formula)
        assert table_rows_of(text) == [{"plain": formula, formula: "1.5"}]
    for plain in (*NUMBERS, *SAFE):
        text = table_text([{"a": plain, "b": 1}])
        assert on_disk(text)[2:] == [plain, "1"]
        assert table_rows_of(text)[0]["a"] == plain
    row = {"a": -1, "b": -2.5, "c": -1e-05, "d": True, "e": None}
    assert on_disk(table_text([row]))[5:] == ["-1", "-2.5", "-1e-05", "True", ""]


def test_tables_of_claims_figures_probes_and_topics_are_escaped_on_disk(tmp_path: Path) -> None:
    check_harmless(table_text(table([made_claim("a", "Figure 2", -1.5, statement="=1+1")])), "=1+1")
    save_figure(curves("", [Panel(series=[Series(x=[0], y=[1.0], label="@sum")])]), tmp_path / "figure")
    check_harmless((tmp_path / "figure.csv").read_text(), "@sum")
    folder = ProbeFolder(tmp_path)
    folder.add(TopicWord, [TopicWord(tokenizer="-x", length=20, fraction=0.1, topic="0", word="=1+1")])
    check_harmless((tmp_path / "topics.csv").read_text(), "=1+1", "-x")
    assert TOPICS.read(tmp_path)[0].word == "=1+1"
    # A topic model of somebody else's, with scikit-learn's attribute.
    model = SimpleNamespace(components_=np.array([[3.0, 2.0, 1.0]]))
    words: Any = ["=1+1", "-x", "frog"]
    word_topics(model, words=3, names=words, out=tmp_path / "words.csv")
    check_harmless((tmp_path / "words.csv").read_text(), "=1+1", "-x")
    assert [word for word, _ in read_pairs(tmp_path / "words.csv")] == words


def test_nobody_writes_a_table_by_himself() -> None:
    """All tables go through the one function that escapes."""
    source = Path(topicscope.__file__).parent
    writers = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ("writer", "DictWriter", "to_csv", "write_csv")
    }
    assert writers == {"store.py"}
