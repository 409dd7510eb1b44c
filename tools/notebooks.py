"""Run the notebooks and keep them with their outputs, so that they can be read where they are hosted.

    python tools/notebooks.py                  runs all of them, and writes what they print and draw into them

``tests/docs/test_notebooks.py`` runs them again and compares.
"""

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import nbclient
import nbformat

ROOT = Path(__file__).parents[1]
NOTEBOOKS = (ROOT / "docs" / "tutorial.ipynb", ROOT / "examples" / "classroom.ipynb")
# Where a notebook writes differs each time, and is nobody's business.
TEMPORARY = re.compile(r"(?:/[\w.-]+)*/tmp\w{8}\b")


def run(path: Path) -> Any:
    """The notebook with new outputs: without times, counts and names of temporary folders."""
    notebook: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        # One thread: the same numbers however many cores there are.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        resources = {"metadata": {"path": folder}}
        client = nbclient.NotebookClient(notebook, timeout=900, kernel_name="python3", resources=resources)
        client.execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.outputs = [cleaned(output) for output in cell.outputs if output.get("name") != "stderr"]
    return notebook


def cleaned(output: Any) -> Any:
    """An output without counts and temporary names."""
    if "execution_count" in output:
        output["execution_count"] = None
    if "text" in output:
        output["text"] = TEMPORARY.sub("runs", output["text"])
    data = output.get("data", {})
    if "text/html" in data:
        # For terminals, and long.
        data.pop("text/plain", None)
    for kind, content in data.items():
        if kind.startswith("text/"):
            data[kind] = TEMPORARY.sub("runs", content)
    # Names of places on the screen that are replaced as a cell goes on.
    output.pop("transient", None)
    return output


def main() -> None:
    """Run all, and write them."""
    for path in NOTEBOOKS:
        notebook = run(path)
        nbformat.write(notebook, path)  # type: ignore[no-untyped-call]
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
