"""Manifests: the list of a data set's files with their sizes, versions and digests, which pins the data set.

`create` writes one (JSON lines or Parquet), `from_url(url, manifest=...)` opens a data set as its
manifest has it, `check` finds what has changed since, and `merge` joins the manifests of parts.
"""

from __future__ import annotations

from .creating import Drift, ManifestSummary, check, create, merge
from .entries import ManifestEntry
from .formats import Manifest
from .layer import ManifestFS, pinned

__all__ = ["Drift", "Manifest", "ManifestEntry", "ManifestFS", "ManifestSummary", "check", "create", "merge", "pinned"]
