"""Buckets as a whole: which one a URL names, making one, and the uploads that were left in it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from .access import BucketAccess
from .boto import is_aws, translated

_ARN_SEGMENTS = {"accesspoint": 2, "outpost": 4}
"""How many segments the resource of an ARN has: `accesspoint/NAME`, `outpost/ID/accesspoint/NAME`."""


def bucket_of(authority: str, path: str) -> tuple[str, str]:
    """Return the bucket or ARN, and the path in it, of a URL's authority and path."""
    fields = authority.split(":", 5)
    if fields[0] != "arn" or len(fields) < 6:
        return authority, path
    resource = fields[5].split(":")
    missing = _ARN_SEGMENTS.get(resource[0], 0) - len(resource)
    segments = path.split("/")[1:]
    if missing <= 0:
        return authority, path
    if len(segments) < missing or not all(segments[:missing]):
        raise ValueError(f"an ARN ends in the name of its access point: s3://{authority}{path}")
    return "/".join([authority, *segments[:missing]]), "/" + "/".join(segments[missing:])


def make_bucket(fs: BucketAccess) -> None:
    """Make the bucket of an FS, if it is missing."""
    with translated():
        try:
            fs.client.head_bucket(Bucket=fs.bucket)
            return
        except fs.client.exceptions.ClientError as exc:
            if exc.response["ResponseMetadata"]["HTTPStatusCode"] != 404:
                raise
        region = fs.client.meta.region_name
        place = {"LocationConstraint": region} if is_aws(fs.client) and region != "us-east-1" else {}
        with contextlib.suppress(fs.client.exceptions.BucketAlreadyOwnedByYou):
            fs.client.create_bucket(Bucket=fs.bucket, **({"CreateBucketConfiguration": place} if place else {}))


def abort_uploads(fs: BucketAccess, older_than: float, key: str = "") -> int:
    """Abort multipart uploads that were begun more than `older_than` seconds ago; returns how many.

    They are what killed writers leave behind: invisible, but stored. All below the FS's root, or only those of one
    object `key` of the bucket.
    """
    prefix = key or (fs._root + "/" if fs._root else "")
    aborted = 0
    for upload in _uploads(fs, prefix):
        old = time.time() - upload["Initiated"].timestamp() >= older_than
        if old and (not key or upload["Key"] == key):
            with translated():
                fs.client.abort_multipart_upload(
                    Bucket=fs.bucket, Key=upload["Key"], UploadId=upload["UploadId"], **fs.objects.boto_bucket()
                )
            aborted += 1
    return aborted


def uploads_of(fs: BucketAccess, key: str) -> list[dict[str, Any]]:
    """Return the unfinished multipart uploads of one object, as boto3 has them."""
    return [upload for upload in _uploads(fs, key) if upload["Key"] == key]


def _uploads(fs: BucketAccess, prefix: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    marker = fs.objects.boto_bucket()
    while True:
        with translated():
            page = fs.client.list_multipart_uploads(Bucket=fs.bucket, Prefix=prefix, **marker)
        found += page.get("Uploads", [])
        if not page.get("IsTruncated"):
            return found
        marker |= {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}


def parts_of(fs: BucketAccess, key: str, upload: str) -> Iterator[dict[str, Any]]:
    """Yield the parts of an upload that the store has, by their numbers."""
    marker: dict[str, Any] = fs.objects.boto_bucket()
    while True:
        with translated():
            page = fs.client.list_parts(Bucket=fs.bucket, Key=key, UploadId=upload, **marker)
        yield from page.get("Parts", [])
        if not page.get("IsTruncated"):
            return
        marker |= {"PartNumberMarker": page["NextPartNumberMarker"]}
