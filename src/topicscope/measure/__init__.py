"""Numbers from matrices, attention and runs, and how certain they are.

The function ``stages`` is named like the module that defines it: ``topicscope.measure.stages`` is the function.
"""

from topicscope.measure.attention import (
    AttentionAverages,
    attention_averages,
    bag_attention_averages,
    implied_weights,
    pair_classes,
)
from topicscope.measure.blocks import ClassAverages, block_sums, class_averages, pattern, product_contrasts, stand_out
from topicscope.measure.stages import (
    NormStages,
    Stages,
    distance_from_uniform,
    half_way,
    mode_norms,
    norm_stages,
    plateau,
    stages,
    turning,
)
from topicscope.measure.uncertainty import (
    Interval,
    holm,
    interval_p,
    proportion_interval,
    proportion_p,
    student_interval,
    student_p,
)

__all__ = [
    "AttentionAverages",
    "ClassAverages",
    "Interval",
    "NormStages",
    "Stages",
    "attention_averages",
    "bag_attention_averages",
    "block_sums",
    "class_averages",
    "distance_from_uniform",
    "half_way",
    "holm",
    "implied_weights",
    "interval_p",
    "mode_norms",
    "norm_stages",
    "pair_classes",
    "pattern",
    "plateau",
    "product_contrasts",
    "proportion_interval",
    "proportion_p",
    "stages",
    "stand_out",
    "student_interval",
    "student_p",
    "turning",
]
