"""What README and docs/sensitivity.md say of a run, printed from its claims.json.

python tools/claims.py results                the README's lines: one per source, in all, what rests on thresholds
python tools/claims.py results --sensitivity  the tables of docs/sensitivity.md
"""

import argparse
import json
from pathlib import Path

from topicscope.reporting.verdicts import headline, sensitivity_table, source_lines


def main() -> None:
    """Print them."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path, help="that topicscope reproduce wrote to")
    options.add_argument("--sensitivity", action="store_true")
    given = options.parse_args()
    rows = json.loads((given.folder / "claims.json").read_text(encoding="utf-8"))
    if given.sensitivity:
        print(sensitivity_table(rows))
    else:
        print("\n".join(f"- {line}" for line in source_lines(rows)))
        print("\nIn all: " + " ".join(headline(rows)))


if __name__ == "__main__":
    main()
