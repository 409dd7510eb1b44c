"""What the paper proves and what follows from it, as pure functions in float64.

The functions ``lemma1``, ``theorem1``, ``theorem2`` and ``theorem3`` are named like the modules that define them:
``topicscope.theory.theorem2`` is the function; import anything else in that module from the module itself.
"""

from topicscope.theory.bayes import BayesFloors, bayes_floors
from topicscope.theory.check import check_matrix
from topicscope.theory.cross_entropy import CrossEntropyOptimum, cross_entropy_optimum, uniform_cross_entropy
from topicscope.theory.dynamics import (
    LogitGradient,
    Stage1Rates,
    Stage2Rates,
    gradient_ratio,
    logit_gradient,
    stage1_rates,
    stage1_topic_rate,
    stage2_rates,
    stage2_topic_rate,
    time_ratio,
)
from topicscope.theory.finite_attention import (
    ClassCounts,
    Weights,
    attention_optimum,
    joint_optimum,
    sampled_counts,
)
from topicscope.theory.finite_documents import (
    Moments,
    embedding_loss,
    finite_optimum,
    gradient_descent,
    infinite_moments,
    moments,
    population_loss,
)
from topicscope.theory.landscape import AttentionOptimum, InfiniteDocuments, Landscape, minimise
from topicscope.theory.lemma1 import Constants, Family, constants, hessian_rank, lemma1
from topicscope.theory.reduced import Reduced, Rows, flow
from topicscope.theory.take_off import Prediction, Stepping, predict
from topicscope.theory.theorem1 import (
    SemidefiniteOptimum,
    realisable,
    semidefinite_optimum,
    theorem1,
    theorem1_bias,
    theorem1_embedding,
)
from topicscope.theory.theorem2 import block_value, diagonal_value, theorem2, theorem2_of
from topicscope.theory.theorem3 import Theorem3, theorem3

__all__ = [
    "AttentionOptimum",
    "BayesFloors",
    "ClassCounts",
    "Constants",
    "CrossEntropyOptimum",
    "Family",
    "InfiniteDocuments",
    "Landscape",
    "LogitGradient",
    "Moments",
    "Prediction",
    "Reduced",
    "Rows",
    "SemidefiniteOptimum",
    "Stage1Rates",
    "Stage2Rates",
    "Stepping",
    "Theorem3",
    "Weights",
    "attention_optimum",
    "bayes_floors",
    "block_value",
    "check_matrix",
    "constants",
    "cross_entropy_optimum",
    "diagonal_value",
    "embedding_loss",
    "finite_optimum",
    "flow",
    "gradient_descent",
    "gradient_ratio",
    "hessian_rank",
    "infinite_moments",
    "joint_optimum",
    "lemma1",
    "logit_gradient",
    "minimise",
    "moments",
    "population_loss",
    "predict",
    "realisable",
    "sampled_counts",
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
    "uniform_cross_entropy",
]
