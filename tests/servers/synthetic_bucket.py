"""A bucket of very many keys that nobody stores: an HTTP server that makes each page of a listing when it is asked for.

Run as a program it prints its port and serves `GET /bucket?list-type=2...` with 1,000 keys a page, so that a test can
watch a client walk through a listing that no real store on this machine could be filled with in a test's time.
"""

from __future__ import annotations

import sys
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEYS = 300_000
_ENTRY = (
    "<Contents><Key>data/{:07d}.jpg</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
    "<ETag>&quot;{:032x}&quot;</ETag><Size>{}</Size><StorageClass>STANDARD</StorageClass></Contents>"
)


def page(start: int, total: int) -> bytes:
    """The XML of the page that begins with key number `start`."""
    end = min(start + 1000, total)
    entries = "".join(_ENTRY.format(number, number, number) for number in range(start, end))
    more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{end}</NextContinuationToken>"
    return (
        '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Name>bucket</Name><KeyCount>{end - start}</KeyCount><EncodingType>url</EncodingType>"
        f"{more if end < total else '<IsTruncated>false</IsTruncated>'}{entries}</ListBucketResult>"
    ).encode()


class Handler(BaseHTTPRequestHandler):
    """Answers listings, and nothing else."""

    protocol_version = "HTTP/1.1"
    total = KEYS

    def do_GET(self) -> None:
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        body = page(int(query.get("continuation-token", 0)), self.total)
        self.send_response(200)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Says nothing."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()
