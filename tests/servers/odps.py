"""A small MaxCompute: the REST and tunnel protocol as far as reading tables goes, over HTTP, with faults on demand.

Written from the protocol alone, with its own CRC-32C and protobuf encoding. A fault is a function of (row range, number
of the request) that says what to do to the answer of a `?data` request.
"""

from __future__ import annotations

import http.server
import json
import struct
import threading
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

END_RECORD, META_COUNT, META_CHECKSUM = 33553408, 33554430, 33554431


class Table(NamedTuple):
    """Columns are (name, type) with the types bigint, double, boolean, string, datetime (milliseconds)."""

    columns: Sequence[tuple[str, str]]
    rows: dict[str, list[list[Any]]]
    """By partition (`pt=1`); "" where the table has none."""
    partition_columns: Sequence[str] = ()


class Cut(NamedTuple):
    """Send so many rows, then end the body, with no footer, as if all were well."""

    rows: int


class Break(NamedTuple):
    """Send so many rows, then drop the connection."""

    rows: int


class Status(NamedTuple):
    """Answer with this status and the service's name of the error."""

    code: int
    name: str = "InternalServerError"


class WrongSum(NamedTuple):
    """Send the row of this number (counted in the answer) with a wrong checksum."""

    row: int


Fault = Cut | Break | Status | WrongSum | None


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_CRC = _crc_table()


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli), bit-reflected."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _CRC[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def varint(value: int) -> bytes:
    """Protobuf's."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def zigzag(value: int) -> bytes:
    """Protobuf's sint64."""
    return varint((value << 1) ^ (value >> 63) & (2**64 - 1) if value >= 0 else ((-value) << 1) - 1)


def tag(field: int, wire: int) -> bytes:
    """Protobuf's."""
    return varint(field << 3 | wire)


def field(number: int, kind: str, value: Any) -> tuple[bytes, bytes]:
    """A value on the wire, and the bytes that its checksum is over."""
    if kind in ("bigint", "datetime"):
        return tag(number, 0) + zigzag(value), struct.pack("<q", value)
    if kind == "boolean":
        return tag(number, 0) + varint(int(value)), bytes([value])
    if kind == "double":
        return tag(number, 1) + struct.pack("<d", value), struct.pack("<d", value)
    data = value if isinstance(value, bytes) else value.encode()
    return tag(number, 2) + varint(len(data)) + data, data


def encode_row(kinds: Sequence[str], row: Sequence[Any], spoil: int = 0) -> tuple[bytes, int]:
    """A row on the wire, and its checksum."""
    wire, summed = b"", b""
    for number, (kind, value) in enumerate(zip(kinds, row, strict=True), 1):
        if value is not None:
            sent, checked = field(number, kind, value)
            wire += sent
            summed += struct.pack("<i", number) + checked
    crc = crc32c(summed) ^ spoil
    return wire + tag(END_RECORD, 0) + varint(crc), crc


def footer(sums: Sequence[int]) -> bytes:
    """What ends a stream that is whole."""
    over = crc32c(b"".join(struct.pack("<I", crc) for crc in sums))
    return tag(META_COUNT, 0) + zigzag(len(sums)) + tag(META_CHECKSUM, 0) + varint(over)


class OdpsServer:
    """A context manager that serves `tables` of the project `project` at `endpoint`."""

    project = "training"

    def __init__(self, tables: dict[str, Table], fault: Callable[[int, int, int], Fault] | None = None) -> None:
        self.tables = tables
        self.fault = fault or (lambda start, count, request: None)
        self.ranges: list[tuple[int, int]] = []
        self.sessions = 0
        self.failing_sessions = 0
        self.expired_sessions = 0
        """So many of the first sessions are over, as each is after 24 hours."""
        self._lock = threading.Lock()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}/api"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def options(self) -> dict[str, Any]:
        """What a client needs to get here."""
        return {
            "project": self.project,
            "access_id": "id",
            "access_key": "key",
            "endpoint": self.endpoint,
            "tunnel_endpoint": self.endpoint,
        }

    def __enter__(self) -> OdpsServer:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def next_request(self, start: int, count: int) -> int:
        """Note a request for rows; returns its number."""
        with self._lock:
            self.ranges.append((start, count))
            return len(self.ranges) - 1

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        server = self

        class Handler(_Handler):
            service = server

        return Handler


class _Handler(http.server.BaseHTTPRequestHandler):
    service: OdpsServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        parsed = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(parsed.query, keep_blank_values=True))
        table = self._table(parsed.path)
        if table is None:
            return
        if "data" in query:
            self._send_rows(table, query)
        elif "downloadid" in query:
            if not self._is_over(query):
                self._send_session(table, query, query["downloadid"])
        elif "partitions" in query:
            self._answer(200, "<Partitions>" + "".join(_partition(one) for one in table.rows if one) + "</Partitions>")
        else:
            self._answer(200, _described(parsed.path.rpartition("/")[2], table))

    def do_POST(self) -> None:
        parsed = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(parsed.query, keep_blank_values=True))
        table = self._table(parsed.path)
        if table is None:
            return
        self.service.sessions += 1
        if self.service.failing_sessions:
            self.service.failing_sessions -= 1
            self._refuse(503, "ServiceUnavailable", "try again")
        elif query.get("partition", "").replace("'", "") not in table.rows:
            self._refuse(404, "NoSuchPartition", "the partition doesn't exist")
        else:
            self._send_session(table, query, f"{self.service.sessions}")

    def _is_over(self, query: dict[str, str]) -> bool:
        """Return whether a session has expired, and was refused."""
        over = int(query["downloadid"]) <= self.service.expired_sessions
        if over:
            self._refuse(400, "StatusConflict", "The download session is expired")
        return over

    def _table(self, path: str) -> Table | None:
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "projects"] and parts[2:4] == [self.service.project, "tables"] and len(parts) == 5:
            if parts[4] in self.service.tables:
                return self.service.tables[parts[4]]
            self._refuse(404, "NoSuchObject", f"Table not found - {parts[4]}")
        elif parts[:2] == ["api", "projects"]:
            self._answer(200, f"<Project><Name>{self.service.project}</Name></Project>")
        else:
            self._refuse(404, "NoSuchObject", path)
        return None

    def _send_session(self, table: Table, query: dict[str, str], name: str) -> None:
        rows = table.rows.get(query.get("partition", "").replace("'", ""), [])
        state = {"DownloadID": name, "Status": "NORMAL", "RecordCount": len(rows), "Schema": _schema(table)}
        self._answer(200, json.dumps(state), "application/json")

    def _send_rows(self, table: Table, query: dict[str, str]) -> None:
        if self._is_over(query):
            return
        start, count = (int(part) for part in query["rowrange"].strip("()").split(","))
        fault = self.service.fault(start, count, self.service.next_request(start, count))
        if isinstance(fault, Status):
            self._refuse(fault.code, fault.name, "a fault")
            return
        rows = table.rows[query.get("partition", "").replace("'", "")][start : start + count]
        names = [name for name, _ in table.columns]
        chosen = [names.index(name) for name in query.get("columns", ",".join(names)).split(",")]
        kinds = [table.columns[at][1] for at in chosen]
        body, sums = b"", []
        for number, row in enumerate(rows):
            if isinstance(fault, Cut | Break) and number == fault.rows:
                break
            spoil = 1 if isinstance(fault, WrongSum) and number == fault.row else 0
            wire, crc = encode_row(kinds, [row[at] for at in chosen], spoil)
            body += wire
            sums.append(crc)
        broken = isinstance(fault, Break)
        self._send(body if isinstance(fault, Cut | Break) else body + footer(sums), lie=100 if broken else 0)

    def _send(self, body: bytes, lie: int) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body) + lie))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = lie > 0

    def _answer(self, code: int, text: str, kind: str = "application/xml") -> None:
        data = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _refuse(self, code: int, name: str, message: str) -> None:
        if "tunnel" in self.headers.get("User-Agent", "") or "?" in self.path:
            self._answer(code, json.dumps({"Code": name, "Message": message}), "application/json")
        else:
            self._answer(code, f"<Error><Code>{name}</Code><Message>{message}</Message></Error>")

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged."""


def _schema(table: Table) -> dict[str, Any]:
    return {
        "columns": [{"name": name, "type": kind} for name, kind in table.columns],
        "partitionKeys": [{"name": name, "type": "string"} for name in table.partition_columns],
    }


def _described(name: str, table: Table) -> str:
    schema = json.dumps(_schema(table))
    return f'<Table><Name>{name}</Name><Schema format="Json"><![CDATA[{schema}]]></Schema></Table>'


def _partition(spec: str) -> str:
    columns = "".join(
        f'<Column Name="{name}" Value="{value}"/>' for name, _, value in (p.partition("=") for p in spec.split(","))
    )
    return f"<Partition>{columns}</Partition>"
