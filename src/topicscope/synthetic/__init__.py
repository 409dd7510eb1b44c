"""Topic models, their documents and how these are masked, with exact probabilities (§3.1, §3.2, §6.1)."""

from topicscope.synthetic.documents import Bags, Documents, MaskedDocuments
from topicscope.synthetic.masking import expected_frequencies, mask_documents
from topicscope.synthetic.topics import TopicModel, equal_topics, load_topic_words, sample_documents

__all__ = [
    "Bags",
    "Documents",
    "MaskedDocuments",
    "TopicModel",
    "equal_topics",
    "expected_frequencies",
    "load_topic_words",
    "mask_documents",
    "sample_documents",
]
