"""Claims by the rule of two stages (``measure/stages.py``), the same for Figures 4 and 5."""

from collections.abc import Callable

import numpy as np

from topicscope.measure.stages import LEAST_GROWTH, LEAST_STEPS, Stages
from topicscope.paper.claims import Claim, Measurement, above, over_seeds
from topicscope.paper.needs import Need, Results


def stage_claims(
    name: str,
    need: Need,
    *,
    source: str,
    figure: str,
    steps: int,
    where: str,
    stages_of: Callable[[Results], list[Stages]],
) -> list[Claim]:
    """The two conditions of the rule, each a number; a run whose keys and queries never move has neither."""
    return [
        Claim(
            id=f"{name}/growth",
            source=source,
            statement="By the end of stage 1 ‖W^V‖ has made at least a third of its growth over "
            f"{steps:,} steps ({where}).",
            expected="> 1/3",
            unit="of the growth",
            rule=above(LEAST_GROWTH),
            needs=(need,),
            measure=lambda results: growth(stages_of(results)),
            figure=figure,
        ),
        Claim(
            id=f"{name}/length",
            source=source,
            statement=f"Stage 1 takes at least 5 % of {steps:,} steps and ends within them ({where}).",
            expected="> 0.05",
            unit="of the steps, 0 if stage 1 does not end",
            rule=above(LEAST_STEPS),
            needs=(need,),
            measure=lambda results: over_seeds([_ended(each.steps, each) for each in stages_of(results)]),
            figure=figure,
        ),
    ]


def growth(found: list[Stages]) -> Measurement:
    """The share of ‖W^V‖'s growth by the end of stage 1, a number a run."""
    ends = [each.end for each in found if each.end is not None]
    return over_seeds(
        [_ended(each.growth, each) for each in found],
        stage_1_ends_at=float(np.mean(ends)) if ends else None,
        runs_with_two_stages=float(np.mean([each.two for each in found])),
    )


def _ended(share: float, of: Stages) -> float:
    """A share of a stage 1 that ends; 0 if it never does, NaN if the run diverged."""
    return share if of.end is not None or np.isnan(share) else 0.0
