"""What probing BERT-base costs, for the estimate in docs/scale.md: ``python benchmarks/wikipedia.py``.

A model of BERT-base's size with random weights (its cost is that of a trained one) is probed on a few passages of the
packaged Wikipedia sample. Printed are the processor's seconds, on one thread, of what grows with the corpus and the
models: reading and cutting text, and a passage through the model with its attention reduced. Bytes are of the files.
"""

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import torch
from transformers import BertConfig, BertModel

from topicscope.commands.probe import probe
from topicscope.probing.passes import Shard
from topicscope.probing.settings import CorpusSettings, Machine, MeasureSettings, ProbeSettings, TopicOptions
from topicscope.probing.sources import find_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=8, help="keep one passage of so many")
    options = parser.parse_args()
    torch.set_num_threads(1)
    spent: list[tuple[int, float, int]] = []
    measure = Shard.measure

    def timed(shard: Shard) -> bytes:
        began = time.process_time()
        content = measure(shard)
        spent.append((len(shard.chosen), time.process_time() - began, len(content)))
        return content

    Shard.measure = timed  # type: ignore[assignment, method-assign]
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "bert-base"
        BertModel(BertConfig()).save_pretrained(model)
        for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
            source = find_model("minilm").folder / name
            if source.exists():
                (model / name).write_bytes(source.read_bytes())
        settings = ProbeSettings(
            text=CorpusSettings(every=options.every),
            topics=TopicOptions(fits=1, iterations=20, fractions=(0.005,)),
            measures=MeasureSettings(replicates=20, permutations=99, head_permutations=9),
        )
        began = time.process_time()
        probe([str(model)], out=Path(folder) / "out", settings=settings, machine=Machine(workers=1, device="cpu"))
        whole = time.process_time() - began
        sizes = {
            str(path.relative_to(folder)): path.stat().st_size
            for path in sorted((Path(folder) / "out" / "work").rglob("*"))
            if path.is_file() and path.stat().st_size > 10_000
        }
    passages, seconds = sum(count for count, _, _ in spent), sum(time for _, time, _ in spent)
    found = {
        "passages": passages,
        "seconds_a_passage_and_model": seconds / passages,
        "bytes_a_shard": [size for _, _, size in spent],
        "seconds_of_everything": whole,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "files": sizes,
    }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
