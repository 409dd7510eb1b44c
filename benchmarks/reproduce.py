"""What a preset takes: processor seconds of each piece of work, one after the other in one process.

python benchmarks/reproduce.py [--preset quick] [--only figure4 table3] [--seeds 10]

On two idle cores the preset takes about half of the sum, and the figures' drawing beside it. What was thought is by the
costs that decide which work is begun first. Run it before adding experiments.
"""

import argparse
import time

from threadpoolctl import threadpool_limits

from topicscope.papers.needs import PRESETS
from topicscope.papers.paper import paper, selected
from topicscope.work import content_digest


def main() -> None:
    """Print a line per group of experiments, the dearest first."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--preset", choices=PRESETS, default="quick")
    options.add_argument("--only", nargs="*", default=())
    options.add_argument("--seeds", type=int)
    given = options.parse_args()
    own = paper(preset=PRESETS[given.preset])
    seeds = tuple(range(given.seeds or PRESETS[given.preset].seeds))
    [(_, claims)] = selected([own], given.only)
    work = {
        content_digest(need.key(seeds)): need
        for claim in claims
        for need in own.needs_of(claim).values()
        if not need.unavailable
    }
    spent: dict[str, list[float]] = {}
    with threadpool_limits(1):
        for need in work.values():
            began = time.process_time()
            need.compute(seeds)
            group = spent.setdefault(need.name.split("/")[0], [0.0, 0.0, 0.0])
            for place, number in enumerate((1.0, time.process_time() - began, need.cost)):
                group[place] += number
    spent["all"] = [sum(numbers) for numbers in zip(*spent.values(), strict=True)]
    for name, (pieces, seconds, thought) in sorted(spent.items(), key=lambda pair: -pair[1][1]):
        print(f"{name:<16}{seconds:8.1f} s in {pieces:3.0f} pieces of work, thought {thought:8.1f} s")


if __name__ == "__main__":
    main()
