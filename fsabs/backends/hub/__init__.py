"""The Hugging Face hub: `hf://datasets/ORG/NAME[@REVISION]/path`, models, spaces, kernels and buckets.

`dialect.py` has the requests that read a repository, `tree.py` what is in a commit, `repository.py` the FS;
`commits.py` writes, `offline.py` reads what the caches hold, `buckets.py` has the FS of a bucket. `quotas.py` keeps the
hub's quotas, for all processes of a user.
"""

from __future__ import annotations

from .buckets import HubBucket
from .repository import Hub

__all__ = ["Hub", "HubBucket"]
