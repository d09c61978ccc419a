"""Names on the hub: a repository at a revision, as the first segments of a URL have it, and its paths in the hub's API.

    hf://datasets/ORG/NAME[@REVISION]/path      and spaces/, kernels/, models/ or, for models, nothing
    hf://buckets/ORG/NAME/path                  which have no revisions

A revision is a branch, a tag or a commit; one with slashes is written with `%2F`, but for `refs/pr/N` and
`refs/convert/NAME`.
"""

from __future__ import annotations

import re
import urllib.parse
from typing import NamedTuple

BUCKETS = "buckets"
DEFAULT_REVISION = "main"
_KINDS = ("datasets", "spaces", "kernels", "models", BUCKETS)
_NAME = r"[A-Za-z0-9_.-]{1,96}"
_STORE = re.compile(rf"(?:({'|'.join(_KINDS)})/)?({_NAME}/{_NAME})(?:@(refs/convert/[^/@]+|refs/pr/\d+|[^/@]+))?")
is_commit = re.compile("[0-9a-f]{40}").fullmatch
"""Matches the full name of a commit: what it names never changes."""


class Repository(NamedTuple):
    """A repository, or a bucket, at a revision."""

    kind: str
    """`datasets`, `spaces`, `kernels`, `models` or `buckets`."""
    name: str
    """`ORG/NAME`."""
    revision: str
    """A branch, a tag or a commit; empty for the default branch."""
    text: str
    """As a URL has it: what stands between `hf://` and the path."""

    @property
    def api(self) -> str:
        """The path of its API."""
        return f"/api/{self.kind}/{self.name}"

    @property
    def page(self) -> str:
        """The path of its page, and of what is below it."""
        return f"/{self.name}" if self.kind == "models" else f"/{self.kind}/{self.name}"

    @property
    def type(self) -> str:
        """The name of its kind in huggingface_hub."""
        return self.kind[:-1]


def parse(authority: str) -> Repository:
    """Return what the authority of a URL names; `ValueError` for what is no repository."""
    match = _STORE.fullmatch(authority)
    if match is None or (not match[1] and match[2].partition("/")[0] in _KINDS):
        raise ValueError(
            f"hf://{authority} names no repository: hf://datasets/ORG/NAME[@REVISION]/path, hf://ORG/MODEL/path, "
            "hf://spaces/ORG/NAME/path or hf://buckets/ORG/NAME/path"
        )
    kind, revision = match[1] or "models", urllib.parse.unquote(match[3] or "")
    if kind == BUCKETS and revision:
        raise ValueError(f"a bucket has no revisions: hf://{authority}")
    return Repository(kind, match[2], revision, authority)
