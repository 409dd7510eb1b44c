"""How far a reader walks through the source: its size, its doors, and the hops from a command to its result.

    python tools/walk.py                     the whole table, for src/
    python tools/walk.py --source OTHER/src  for another tree
    python tools/walk.py --walk probe        the functions of one walk, in the order in which they are entered

A walk is run, not guessed: a tiny version of a command runs under ``sys.setprofile``. Each function of the package that
is called before the result is last written counts once: as entered, and as a hop if it is on the call stack at one of
the milestones, which are that a file of the output folder is written, a gradient is taken, weights are updated, a layer
of a model is computed, or a claim gets its measurement or its verdict. Left out are code that runs while a module is
imported, lambdas and comprehensions, and what is called only to put together the list of all claims.
"""

import argparse
import ast
import contextlib
import importlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

PACKAGE = "topicscope"
# Inside this module every claim's definition is called, also those that are not run.
REGISTRY = "papers/paper.py"

# Milestones: functions of torch, at which numbers are made, and of ours, at which a claim is judged.
MILESTONES = {"run_backward", "_fused_adam_", "linear", "over_seeds", "interval_given"}

# Of each walk: the file that holds its result, and the command that writes it; {out} and {tiny} are folders.
WALKS = {
    "train": (
        "run.safetensors",
        "train --out {out} --training.steps 2 --training.log-every 1 --training.snapshots 1 --data.documents 100",
    ),
    "reproduce": (
        "claims.json",
        "reproduce --out {out} --only figure2/uniform --seeds 1 --workers 1 --quiet",
    ),
    "probe": (
        "probe.json",
        "probe {tiny} --corpus {tiny}/corpus.txt --out {out} --topics 3 --fractions 0.2 --fits 1 --iterations 20 "
        "--length 20 --replicates 20 --permutations 19 --head-permutations 19 --workers 1 --device cpu --quiet",
    ),
}
WORDS = [first + rest for first in "bdgfklm" for rest in ("ana", "ene", "iri", "olo", "usu", "aza", "ete")]


def main() -> None:
    """Print the table, or one walk."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--source", type=Path, default=Path(__file__).parents[1] / "src")
    options.add_argument("--walk", choices=WALKS)
    options.add_argument("--trace", nargs=2, metavar=("WALK", "FILE"), help=argparse.SUPPRESS)
    given = options.parse_args()
    source = given.source.resolve()
    if given.trace:
        name, found = given.trace
        trace(name, source / PACKAGE, Path(found))
    elif given.walk:
        found = walk(given.walk, source)
        for function in found["entered"]:
            print("hop   " if function in found["hops"] else "      ", function)
    else:
        describe(source)


def describe(source: Path) -> None:
    """The whole table."""
    imports = imports_of(source / PACKAGE)
    importers = {module: sum(module in found for found in imports.values()) for module in imports}
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in (source / PACKAGE).rglob("*.py"))
    print(f"lines of Python              {lines:7,}")
    print(f"files                        {len(imports):7,}")
    print(f"modules with one importer    {sum(count == 1 for count in importers.values()):7,}")
    print(f"import cycles                {len(cycles(imports)):7,}")
    print(f"\n{'walk':<26}{'hops':>7}{'files':>7}{'entered':>9}{'files':>7}{'writes':>8}")
    for name, (result, _) in WALKS.items():
        found = walk(name, source)
        hops, entered = found["hops"], found["entered"]
        print(
            f"{name + ' → ' + result:<26}{len(hops):7}{files_of(hops):7}"
            f"{len(entered):9}{files_of(entered):7}{len(found['written']):8}"
        )


def files_of(functions: list[str]) -> int:
    """In how many files they are."""
    return len({function.split()[0] for function in functions})


def imports_of(package: Path) -> dict[str, set[str]]:
    """Modules of the package, and which others each imports, wherever in it."""

    def module(path: Path) -> str:
        return ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")

    paths = {module(path): path for path in sorted(package.rglob("*.py"))}
    imports: dict[str, set[str]] = {name: set() for name in paths}
    for name, path in paths.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found = {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                # ``from package import module`` imports the module, ``from module import name`` the one before.
                within = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
                found = {full if full in paths else node.module for full in within.values()}
            else:
                continue
            imports[name] |= found & paths.keys() - {name}
    return imports


def cycles(imports: dict[str, set[str]]) -> set[frozenset[str]]:
    """Groups of modules each of which imports every other, directly or through others."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            new = imports[waiting.pop()] - seen
            seen |= new
            waiting += new
        return seen

    reach = {module: reached(module) for module in imports}
    return {
        frozenset(other for other in reach[module] if module in reach[other])
        for module in imports
        if module in reach[module]
    }


def walk(name: str, source: Path) -> dict[str, list[str]]:
    """Run a walk in a process of its own, on a source tree of one's choice."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.json"
        command = [sys.executable, __file__, "--source", str(source), "--trace", name, str(found)]
        environment = os.environ | {"PYTHONPATH": str(source), "HF_HUB_OFFLINE": "1"}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        traced: dict[str, list[str]] = json.loads(found.read_text())
        return traced


def trace(name: str, package: Path, found: Path) -> None:
    """Run the command of a walk here, and write which functions of the package it entered."""
    result, words = WALKS[name]
    with tempfile.TemporaryDirectory() as folder:
        tiny, out = Path(folder) / "tiny", Path(folder) / "out"
        if name == "probe":
            save_tiny_model(tiny)
        sys.argv = [PACKAGE, *words.format(out=out, tiny=tiny).split()]
        run = importlib.import_module(f"{PACKAGE}.__main__").run
        recorder = Recorder(package, out, result)
        threading.setprofile(recorder.event)
        sys.setprofile(recorder.event)
        with contextlib.suppress(SystemExit):
            run()
        sys.setprofile(None)
        assert (out / result).exists(), f"{name} ended without {result}"
        found.write_text(json.dumps(recorder.found()))


class Recorder:
    """Functions of a package that are entered, those on the stack at milestones, and files that are written."""

    def __init__(self, package: Path, out: Path, result: str) -> None:
        self._root, self._out, self._result = f"{package}{os.sep}", f"{out}{os.sep}", result
        self._entered: dict[CodeType, None] = {}
        self._hops: dict[CodeType, None] = {}
        self._written: list[str] = []
        # How many of the three there were when the result was last written.
        self._until = (0, 0, 0)
        # Of each thread, how many frames are open of a module that is imported, or of the registry of claims.
        self._aside = threading.local()
        sys.addaudithook(self._audit)

    def event(self, frame: FrameType, event: str, called: Any) -> None:
        """What ``sys.setprofile`` calls."""
        code = frame.f_code
        if event == "c_call" and getattr(called, "__name__", "") in MILESTONES:
            self._milestone(frame)
        if event not in ("call", "return") or not code.co_filename.startswith(self._root):
            return
        aside: int = getattr(self._aside, "open", 0)
        if code.co_name == "<module>" or code.co_filename.endswith(REGISTRY):
            self._aside.open = aside + (1 if event == "call" else -1)
        elif event == "call" and not aside and not code.co_name.startswith("<"):
            self._entered.setdefault(code)
            if code.co_name in MILESTONES:
                self._milestone(frame)

    def _milestone(self, frame: FrameType | None) -> None:
        while frame:
            if frame.f_code in self._entered:
                self._hops.setdefault(frame.f_code)
            frame = frame.f_back

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """What Python calls when a file is opened (path, mode, flags) or renamed (from, to, ...), among others."""
        if event not in ("open", "os.rename"):
            return
        path, mode = (arguments[0], arguments[1]) if event == "open" else (arguments[1], "w")
        if not str(path).startswith(self._out) or not set(mode or "") & set("wax+"):
            return
        self._milestone(sys._getframe())
        # What is written under a temporary name is in place when it is renamed.
        if event == "os.rename" or str(path).endswith(self._result):
            self._written.append(str(path).removeprefix(self._out))
        if str(path).endswith(self._result):
            self._until = (len(self._entered), len(self._hops), len(self._written))

    def found(self) -> dict[str, list[str]]:
        """What there was when the result was last written."""
        entered, hops, written = self._until
        return {
            "entered": [self._name(code) for code in self._entered][:entered],
            "hops": [self._name(code) for code in self._hops][:hops],
            "written": self._written[:written],
        }

    def _name(self, code: CodeType) -> str:
        return f"{code.co_filename.removeprefix(self._root)} {code.co_qualname}"


def save_tiny_model(folder: Path) -> None:
    """A random BERT of two layers with a tokenizer of 49 words, and a corpus of three topics of them."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    transformers.logging.disable_progress_bar()
    special = {name: f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    vocabulary = {word: place for place, word in enumerate([*special.values(), *WORDS])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=special["unk"]))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokens = {f"{name}_token": word for name, word in special.items()}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokens).save_pretrained(folder)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=len(vocabulary), max_position_embeddings=40, **sizes)).save_pretrained(folder)
    draw = random.Random(0)
    # Each document has words of two topics, so that passages have pairs of both kinds.
    topics = [WORDS[start::3] for start in range(3)]
    pools = [topics[first] + topics[first - 1] for first in draw.choices(range(3), k=40)]
    (folder / "corpus.txt").write_text("\n".join(" ".join(draw.choices(pool, k=60)) for pool in pools) + "\n")


if __name__ == "__main__":
    main()
