"""What the paper proves and what follows from it, as pure functions in float64.

The functions ``lemma1``, ``theorem1``, ``theorem2`` and ``theorem3`` are named like the modules that define them:
``topicscope.theory.theorem2`` is the function; import anything else in that module from the module itself.
"""

from topicscope.theory.bayes import bayes_floors
from topicscope.theory.check import check_matrix
from topicscope.theory.cross_entropy import cross_entropy_optimum
from topicscope.theory.dynamics import stage1_rates, stage1_topic_rate, stage2_rates, stage2_topic_rate, time_ratio
from topicscope.theory.finite_documents import (
    finite_optimum,
    gradient_descent,
    infinite_moments,
    moments,
    population_loss,
)
from topicscope.theory.landscape import InfiniteDocuments, Landscape, minimise
from topicscope.theory.lemma1 import constants, hessian_rank, lemma1
from topicscope.theory.take_off import Stepping, predict
from topicscope.theory.theorem1 import realisable, semidefinite_optimum, theorem1, theorem1_bias, theorem1_embedding
from topicscope.theory.theorem2 import block_value, diagonal_value, theorem2, theorem2_of
from topicscope.theory.theorem3 import theorem3

__all__ = [
    "InfiniteDocuments",
    "Landscape",
    "Stepping",
    "bayes_floors",
    "block_value",
    "check_matrix",
    "constants",
    "cross_entropy_optimum",
    "diagonal_value",
    "finite_optimum",
    "gradient_descent",
    "hessian_rank",
    "infinite_moments",
    "lemma1",
    "minimise",
    "moments",
    "population_loss",
    "predict",
    "realisable",
    "semidefinite_optimum",
    "stage1_rates",
    "stage1_topic_rate",
    "stage2_rates",
    "stage2_topic_rate",
    "theorem1",
    "theorem1_bias",
    "theorem1_embedding",
    "theorem2",
    "theorem2_of",
    "theorem3",
    "time_ratio",
]
