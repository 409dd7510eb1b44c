"""What the quick preset takes, by source: processor seconds of each piece of work, one after the other in one process.

python benchmarks/reproduce.py [--preset quick] [--only figure4 table3] [--seeds 10]

Work that claims of several sources need counts for the first of them. On two idle cores the preset takes about half of
the sum, and the figures' drawing beside it. What was thought is by the costs from which ``reproduce`` tells the time
left. Run it before adding experiments.
"""

import argparse
import time
from collections import defaultdict

from threadpoolctl import threadpool_limits

from topicscope.paper import registry
from topicscope.paper.claim import PRESETS, need_item


def main() -> None:
    """Print a line per source, the dearest first."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--preset", choices=PRESETS, default="quick")
    options.add_argument("--only", nargs="*", default=())
    options.add_argument("--seeds", type=int)
    given = options.parse_args()
    preset = PRESETS[given.preset]
    seeds = tuple(range(given.seeds or preset.seeds))
    spent: dict[str, float] = defaultdict(float)
    thought: dict[str, float] = defaultdict(float)
    pieces: dict[str, int] = defaultdict(int)
    done: set[str] = set()
    with threadpool_limits(1):
        for claim in registry(preset).select(tuple(given.only)):
            for need in () if claim.unavailable else claim.needs:
                item = need_item(need, seeds)
                if item.digest in done:
                    continue
                done.add(item.digest)
                began = time.process_time()
                need.compute(seeds)
                spent[claim.source] += time.process_time() - began
                thought[claim.source] += need.cost
                pieces[claim.source] += 1
    for source, seconds in sorted(spent.items(), key=lambda pair: -pair[1]):
        print(f"{source:<16}{seconds:8.1f} s in {pieces[source]:3d} pieces of work, thought {thought[source]:8.1f} s")
    print(f"{'all':<16}{sum(spent.values()):8.1f} s, thought {sum(thought.values()):8.1f} s")


if __name__ == "__main__":
    main()
