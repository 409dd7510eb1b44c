"""A shard's sums as bytes and back, to the bit."""

import numpy as np
from safetensors.numpy import load, save

from topicscope.measure.attention_pairs import ArticleSums, ShardSums
from topicscope.measure.pair_table import PairTable
from topicscope.measure.permuted_pairs import PermutedSums

ARTICLE_FIELDS = ("article", "sums", "counts", "histograms", "matched_sums", "matched_counts")
TABLE_FIELDS = ("codes", "counts", "sums")


def shard_bytes(shard: ShardSums) -> bytes:
    """As a safetensors file."""
    arrays = {f"article.{name}": getattr(shard.articles, name) for name in ARTICLE_FIELDS}
    arrays |= {f"pair.{name}": getattr(shard.pairs, name) for name in TABLE_FIELDS}
    arrays["pair.vocabulary"] = np.array([shard.pairs.vocabulary])
    for place, each in enumerate(shard.permuted):
        arrays |= {f"permuted.{place}.sums": each.sums, f"permuted.{place}.counts": each.counts}
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def restore_shard(content: bytes) -> ShardSums:
    """What ``shard_bytes`` wrote."""
    arrays = load(content)
    tested = sum(name.startswith("permuted.") for name in arrays) // 2
    return ShardSums(
        articles=ArticleSums(*(arrays[f"article.{name}"] for name in ARTICLE_FIELDS)),
        pairs=PairTable(int(arrays["pair.vocabulary"][0]), *(arrays[f"pair.{name}"] for name in TABLE_FIELDS)),
        permuted=tuple(
            PermutedSums(arrays[f"permuted.{place}.sums"], arrays[f"permuted.{place}.counts"])
            for place in range(tested)
        ),
    )
