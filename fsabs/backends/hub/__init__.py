"""The Hugging Face hub: `hf://datasets/ORG/NAME[@REVISION]/path`, models, spaces, kernels and buckets.

`dialect.py` has the requests that read a repository, `tree.py` what is in a commit, `repository.py` the FS, also of
what the caches hold; `commits.py` writes, `buckets.py` has the FS of a bucket. `access.py` keeps the hub's quotas, for
all processes of a user.
"""

from __future__ import annotations

from .buckets import HubBucket
from .repository import Hub

__all__ = ["Hub", "HubBucket"]
