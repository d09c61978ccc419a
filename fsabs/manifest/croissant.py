"""Manifests as MLCommons Croissant 1.0 (https://docs.mlcommons.org/croissant/docs/croissant-spec.html).

Each file is a `FileObject` of `distribution`, with its path below the data set as `contentUrl`. Versions have no place
in the format. A document is read as a whole, whatever its length: Croissant describes files, it does not index them.
"""

from __future__ import annotations

import io
import json
import mimetypes
import re
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, BinaryIO

from ..core import errors, keys, redaction
from ..core.blobs import Blob, BytesBlob
from ..core.limits import parse_json
from . import jsonlines
from .entries import DIGESTS, NAME, ManifestEntry, distinct

_TERMS = (
    "citeAs column conformsTo data dataType equivalentProperty examples extract field fileProperty fileObject fileSet "
    "format includes isLiveDataset jsonPath key md5 parentField path recordSet references regex repeated replace "
    "samplingRate separator source subField transform"
)
"""The names of the format that are of Croissant's own vocabulary."""
_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    **{term: f"cr:{term}" for term in _TERMS.split()},
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "sc": "https://schema.org/",
}
_SPECIFICATION = "http://mlcommons.org/croissant/1.0"
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def write(file: BinaryIO, entries: Iterable[ManifestEntry], url: str) -> tuple[int, int]:
    """Write the files of entries as a document about the data set at `url`; return their number and their sizes."""
    head = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "name": keys.name(url.rstrip("/")) or "dataset",
        "conformsTo": _SPECIFICATION,
        "url": url,
    }
    file.write(json.dumps(head, indent=1).encode()[: -len("\n}")] + b',\n "distribution": [')
    count = total = 0
    for entry in entries:
        if entry.directory:
            continue
        if entry.digest is None:
            raise ValueError(f"Croissant wants a digest of every file, and {entry.name!r} has none")
        file.write((b",\n  " if count else b"\n  ") + json.dumps(_file_object(entry)).encode())
        count, total = count + 1, total + entry.size
    file.write(b"\n ]\n}\n")
    return count, total


def _file_object(entry: ManifestEntry) -> dict[str, str]:
    algorithm, _, digits = (entry.digest or "").partition(":")
    return {
        "@type": "cr:FileObject",
        "@id": keys.to_url_path(entry.name),
        "name": keys.name(entry.name),
        "contentUrl": keys.to_url_path(entry.name),
        "contentSize": f"{entry.size} B",
        "encodingFormat": mimetypes.guess_type(entry.name)[0] or "application/octet-stream",
        algorithm: digits,
    }


def read(blob: Blob, url: str | None) -> Blob:
    """Return a document as a manifest of JSON lines; absolute `contentUrl`s must lie below `url`."""
    try:
        document = parse_json(blob.read_all())
        found = document["distribution"]
        if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
            raise ValueError("distribution is no list of objects")
        entries = [entry for item in found if (entry := _entry(item, url)) is not None]
    except (ValueError, KeyError, TypeError, PermissionError) as exc:
        raise errors.corrupt(blob.url, f"no Croissant document with files: {exc}", "open") from None
    file = io.BytesIO()
    ordered = sorted(entries, key=NAME)
    jsonlines.write(file, distinct(ordered, lambda reason: errors.corrupt(blob.url, reason, "open")))
    return BytesBlob(blob._origin, blob._key, file.getvalue(), blob.version)


def _entry(item: dict[str, Any], url: str | None) -> ManifestEntry | None:
    """Return the entry of a `FileObject`; None for sets of files, and files in archives, whose archive is an entry."""
    kinds = item.get("@type")
    names = [kinds] if isinstance(kinds, str) else kinds or []
    if not any(str(name).rpartition(":")[2].rpartition("/")[2] == "FileObject" for name in names):
        return None
    if item.get("containedIn"):
        return None
    name = _name(str(item["contentUrl"]), url)
    for algorithm in DIGESTS:
        if digits := item.get(algorithm, item.get(f"cr:{algorithm}")):
            digest = f"{algorithm}:{str(digits).lower()}"
            return ManifestEntry(name, _size(item.get("contentSize"), name), None, digest).checked()
    return ManifestEntry(name, _size(item.get("contentSize"), name)).checked()


def _name(content_url: str, url: str | None) -> str:
    """Return the path below the data set."""
    if "://" not in content_url:
        return keys.normalize(keys.from_url_path(content_url))
    base = (url or "").rstrip("/") + "/"
    if url is None or not content_url.startswith(base):
        shown = redaction.without_secrets(content_url)
        raise ValueError(f"{shown} does not lie below {redaction.without_secrets(base) if url else 'a known URL'}")
    return keys.normalize(keys.from_url_path(content_url[len(base) :]))


def _size(text: Any, name: str) -> int:
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", str(text))
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError(f"{name!r} has the contentSize {text!r}")
    amount = Fraction(match[1]) * _UNITS[match[2].lower()]
    if amount.denominator != 1:
        raise ValueError(f"{name!r} has the contentSize {text!r}, which is rounded")
    return int(amount)
