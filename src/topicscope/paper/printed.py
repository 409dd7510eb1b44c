"""What the paper prints about natural language: Tables 1 and 2."""

from topicscope.text.tokenizers import UNTRAINED

FRACTIONS = (0.0005, 0.001, 0.002)
MEASURES = ("cosine", "dot", "attention")
BERT = "google-bert/bert-base-uncased"
UNTRAINED_BERT = f"{UNTRAINED}{BERT}"

# The hub's models that the paper's names stand for. It names no sizes; these are the base models.
PAPER_MODELS = {
    BERT: "Bert",
    "albert/albert-base-v2": "Albert",
    "facebook/bart-base": "Bart",
    "google/electra-base-discriminator": "Electra",
    "FacebookAI/roberta-base": "Roberta",
    UNTRAINED_BERT: "Bert (randomly initialized)",
}

# Table 1: same- over different-topic averages by model, a row a threshold: cosine, dot product, attention.
TABLE_1 = {
    BERT: ((1.21, 1.19, 1.32), (1.13, 1.15, 1.28), (1.11, 1.13, 1.22)),
    "albert/albert-base-v2": ((5.64, 6.29, 1.33), (4.18, 3.74, 1.28), (3.24, 2.93, 1.22)),
    "facebook/bart-base": ((2.80, 2.67, 1.35), (1.95, 1.92, 1.31), (1.63, 1.62, 1.23)),
    "google/electra-base-discriminator": ((5.98, 5.37, 2.14), (7.70, 7.35, 2.09), (7.46, 8.08, 1.95)),
    "FacebookAI/roberta-base": ((6.44, 6.81, 1.40), (5.73, 6.31, 1.31), (5.24, 5.30, 1.22)),
    UNTRAINED_BERT: ((1.00080, 1.00063, 0.99943), (0.99974, 1.00036, 0.99996), (1.00016, 1.00027, 1.00007)),
}

# Table 2, BERT, a row a threshold: attention of same-topic and of top co-occurring pairs, cosine of the same.
TABLE_2 = ((0.00659, 0.00751, 0.468, 0.316), (0.00621, 0.00695, 0.461, 0.311), (0.00597, 0.00677, 0.425, 0.323))


def table_1(model: str, fraction: float, measure: str) -> float:
    """One ratio of Table 1; of BERT (or the untrained one) for a model that is not the paper's."""
    like = UNTRAINED_BERT if model.startswith(UNTRAINED) else BERT
    return TABLE_1.get(model, TABLE_1[like])[FRACTIONS.index(fraction)][MEASURES.index(measure)]
