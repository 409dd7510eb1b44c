"""Map a function over work items: in this process, in several, or on Ray; each result written once and found again.

An item is determined by its key, never by who computes it or when. Its result is a file named by the key's digest,
written atomically beside a checksum; an undamaged result is not computed again, whichever engine wrote it. So an
interrupted map goes on where it was, a truncated file is never used, and items finished before Ctrl-C are kept.
"""

from topicscope.scale.engines import Report, check_engine, completed, map_items
from topicscope.scale.items import (
    Item,
    available_cores,
    code_digest,
    content_digest,
    made_with,
    package_versions,
    read_result,
    result_paths,
    scratch_folder,
    shared_folder,
    versions,
    write_result,
)

__all__ = [
    "Item",
    "Report",
    "available_cores",
    "check_engine",
    "code_digest",
    "completed",
    "content_digest",
    "made_with",
    "map_items",
    "package_versions",
    "read_result",
    "result_paths",
    "scratch_folder",
    "shared_folder",
    "versions",
    "write_result",
]
