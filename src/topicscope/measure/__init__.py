"""Numbers from matrices, attention and runs, and how certain they are.

The function ``stages`` is named like the module that defines it: ``topicscope.measure.stages`` is the function.
"""

from topicscope.measure.attention import attention_by_class, implied_weights
from topicscope.measure.blocks import block_sums, class_averages, pattern, product_contrasts, stand_out
from topicscope.measure.stages import distance_from_uniform, mode_norms, norm_stages, plateau, stages, turning
from topicscope.measure.uncertainty import interval_p, student_interval

__all__ = [
    "attention_by_class",
    "block_sums",
    "class_averages",
    "distance_from_uniform",
    "implied_weights",
    "interval_p",
    "mode_norms",
    "norm_stages",
    "pattern",
    "plateau",
    "product_contrasts",
    "stages",
    "stand_out",
    "student_interval",
    "turning",
]
