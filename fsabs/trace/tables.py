"""The tables of an analysis: operations, files and the slowest calls. `analysis.py` gives them the events of one
process after the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Set

from . import figures
from .intervals import Array, Collector
from .reading import Columns, Key
from .results import FileRow, Histogram, Row
from .schema import KINDS, Event, layer, operation, trimmed

FILES_KEPT = 200_000
"""The limit of distinct files."""
OPENS = frozenset({"open", "create", "append", "open_update"})


class Sums:
    """The sums of one kind and name in one process, or in all of them."""

    def __init__(self) -> None:
        import numpy as np

        self.calls = self.errors = self.bytes = self.nanoseconds = self.most = 0
        self.least = math.inf
        self.fine = np.zeros(figures.FINE_BUCKETS, np.int64)
        self.sizes = np.zeros(65, np.int64)
        self.busy: float = 0

    def add(self, duration: Array, size: Array, failed: Array) -> None:
        """Count more events, at least one: their nanoseconds, sizes, and a mask of those that failed."""
        import numpy as np

        self.calls += len(duration)
        self.errors += int(failed.sum())
        self.bytes += int(size.sum())
        self.nanoseconds += int(duration.sum())
        self.least = min(self.least, int(duration.min()))
        self.most = max(self.most, int(duration.max()))
        self.fine += np.bincount(figures.fine_buckets(duration), minlength=figures.FINE_BUCKETS)
        self.sizes += np.bincount(figures.bit_lengths(size), minlength=65)

    def include(self, other: Sums) -> None:
        """Add the sums of another process, or of another operation."""
        self.calls += other.calls
        self.errors += other.errors
        self.bytes += other.bytes
        self.nanoseconds += other.nanoseconds
        self.least, self.most = min(self.least, other.least), max(self.most, other.most)
        self.fine += other.fine
        self.sizes += other.sizes
        self.busy += other.busy

    def row(self, kind: str, layer: str, operation: str, retries: int) -> Row:
        """Return the row of the table."""
        import numpy as np

        least, most = self.least / 1e9, self.most / 1e9
        found = [figures.percentile(self.fine, part) / 1e9 for part in (0.5, 0.95, 0.99)]
        p50, p95, p99 = np.clip(found, least, most).tolist()
        return Row(
            kind, layer, operation, self.calls, self.bytes, self.errors, retries, self.nanoseconds / 1e9,
            self.busy / 1e9, least, p50, p95, p99, most,
        )  # fmt: skip


class OperationTable:
    """The summary table: the sums of each kind and name."""

    def __init__(self) -> None:
        self.all: dict[Key, Sums] = {}
        """Of the processes that are over."""
        self._mine: dict[Key, Sums] = {}  # of the one that is being read, and when its operations were under way
        self._busy: dict[Key, Collector] = {}

    def add(self, some: Columns) -> None:
        """Add events of the process."""
        import numpy as np

        failed = some.failed
        for number in np.unique(some.key):
            key = some.keys[number]
            which = some.key == number
            self._mine.setdefault(key, Sums()).add(some.duration[which], some.size[which], failed[which])
            self._busy.setdefault(key, Collector()).add(some.begin[which], some.end[which])

    def end_process(self) -> None:
        """Take the process as complete."""
        for key, busy in self._busy.items():
            self._mine[key].busy = busy.total()
        for key, mine in self._mine.items():
            self.all.setdefault(key, Sums()).include(mine)
        self._mine, self._busy = {}, {}

    def operations(self) -> list[Row]:
        """Return the rows, by kind, then by seconds."""
        retries = {key[1]: sums.calls for key, sums in self.all.items() if key[0] == "retry"}
        rows = [
            sums.row(kind, layer(name), operation(name), retries.get(name, 0) if kind == "request" else 0)
            for (kind, name), sums in self.all.items()
        ]
        return sorted(rows, key=_order)

    def latencies(self) -> dict[str, Histogram]:
        """Return the histograms of durations, by kind and name."""
        return {f"{key[0]} {key[1]}": Histogram("ns", figures.coarse(sums.fine)) for key, sums in self.all.items()}

    def sizes(self, wanted: Iterable[Key]) -> Histogram:
        """Return the histogram of the sizes of several operations together."""
        import numpy as np

        counts = sum((self.all[key].sizes for key in wanted), np.zeros(65, np.int64))
        return Histogram("bytes", trimmed([int(count) for count in counts]))


def _order(row: Row) -> tuple[int, float, str]:
    kinds = list(KINDS)
    return (kinds.index(row.kind) if row.kind in kinds else len(kinds), -row.seconds, row.layer + row.operation)


class FileTable:
    """The operations on each file."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._rows: list[Array] = []  # opens, reads, bytes, seconds, the slowest call, errors
        self.seen = 0
        """Distinct files, `FILES_KEPT` at most."""

    def add(self, some: Columns) -> None:
        """Events; those of the user's calls count."""
        import numpy as np

        chosen = some.of("fs").nonzero()[0]
        used = np.unique(some.where[chosen])
        of_text = np.full(len(some.urls), -1, np.int64)
        of_text[used] = [self._number(some.urls[at]) for at in used]
        numbers = of_text[some.where[chosen]]
        chosen, numbers = chosen[numbers >= 0], numbers[numbers >= 0]
        if not len(chosen):
            return
        self._make_room(int(numbers.max()) + 1)
        opens, reads, data, seconds, slowest, errors = self._rows
        duration, read = some.duration[chosen] / 1e9, some.reads()[chosen]
        np.add.at(opens, numbers[_among(some, OPENS)[chosen]], 1)
        np.add.at(reads, numbers[read], 1)
        np.add.at(data, numbers[read], some.size[chosen][read])
        np.add.at(seconds, numbers, duration)
        np.maximum.at(slowest, numbers, duration)
        np.add.at(errors, numbers[some.failed[chosen]], 1)

    def rows(self, count: int) -> list[FileRow]:
        """Return the files with the most seconds."""
        if not self._numbers:
            return []
        wheres = list(self._numbers)
        opens, reads, data, seconds, slowest, errors = self._rows
        return [
            FileRow(
                wheres[at], int(opens[at]), int(reads[at]), int(data[at]),
                float(seconds[at]), float(slowest[at]), int(errors[at]),
            )
            for at in (-seconds[: len(wheres)]).argsort(kind="stable")[:count]
        ]  # fmt: skip

    def _number(self, where: str) -> int:
        """The number of a file; -1 for none, and for what is one too many."""
        number = self._numbers.get(where)
        if number is None and where and len(self._numbers) < FILES_KEPT:
            number = self._numbers[where] = len(self._numbers)
            self.seen += 1
        return -1 if number is None else number

    def _make_room(self, count: int) -> None:
        import numpy as np

        if not self._rows:
            self._rows = [np.zeros(1024) for _ in range(6)]
        if count > len(self._rows[0]):
            more = np.zeros(max(count, 2 * len(self._rows[0])) - len(self._rows[0]))
            self._rows = [np.concatenate((row, more)) for row in self._rows]


def _among(some: Columns, operations: Set[str]) -> Array:
    """Return a mask of the user's calls that are one of `operations`."""
    return some.which(lambda key: key[0] == "fs" and operation(key[1]) in operations)


class Slowest:
    """The slowest calls, requests and spans."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.rows: list[Event] = []
        """The slowest first."""

    def add(self, some: Columns, process: int) -> None:
        """Events of a process."""
        least = self.rows[-1].duration if len(self.rows) == self._count else -1
        timed = some.which(lambda key: key[0] in ("fs", "request", "span"))
        which = (timed & (some.duration > least)).nonzero()[0]
        slowest = which[(-some.duration[which]).argsort(kind="stable")[: self._count]]
        found = [*self.rows, *(some.event(at, process) for at in slowest)]
        self.rows = sorted(found, key=lambda event: -event.duration)[: self._count]


class RequestTable:
    """The time in which requests for data were under way, and what of it slow and repeated ones took.

    Requests are made side by side, so that the sums of their durations don't tell what would have been saved.
    """

    def __init__(self) -> None:
        self.busy = 0.0
        """Seconds in which any was under way, summed over processes, ..."""
        self.slow = 0.0
        """... of it those in which all that were had taken twice as long as the typical one, ..."""
        self.again = 0.0
        """... and those in which all that were had failed before."""
        self.count = 0
        self.typical = 0.0
        """The seconds of the typical one, in the process of the slowest one."""
        self.slowest = (0.0, 0, "")
        """The seconds, the bytes and the URL of the slowest one."""
        self._failed: dict[str, list[int]] = {}  # the ends of what has failed and was not made again, by URL
        self._start_process()

    def _start_process(self) -> None:
        import numpy as np

        self._fine = np.zeros(figures.FINE_BUCKETS, np.int64)
        # When any request was under way; any, had each taken twice the typical time at most; any that repeats no other.
        self._any, self._typical, self._first = (Collector() for _ in range(3))
        self._failed.clear()

    def add(self, some: Columns, which: Array) -> None:
        """Add requests of a process."""
        import numpy as np

        begin, end, failed = some.begin[which], some.end[which], some.failed[which]
        if not len(begin):
            return
        self.count += len(begin)
        done = figures.fine_buckets(some.duration[which][~failed])
        self._fine += np.bincount(done, minlength=figures.FINE_BUCKETS)
        typical = int(figures.percentile(self._fine, 0.5)) if self._fine.any() else 0
        at = which.nonzero()[0][some.duration[which].argmax()]
        if (seconds := int(some.duration[at]) / 1e9) > self.slowest[0]:
            self.slowest, self.typical = (seconds, int(some.size[at]), some.urls[some.where[at]]), typical / 1e9
        again = self._repeated([some.urls[where] for where in some.where[which]], begin, end, failed)
        succeeded = np.where(failed, begin + typical, end)
        self._any.add(begin, end)
        self._typical.add(begin, np.minimum(end, begin + 2 * typical))
        self._first.add(begin[~again], succeeded[~again])

    def end_process(self) -> None:
        """Take the process as complete."""
        busy = self._any.total()
        self.busy += busy / 1e9
        self.slow += (busy - self._typical.total()) / 1e9
        self.again += max(0, busy - self._first.total()) / 1e9
        self._start_process()

    def _repeated(self, urls: list[str], begin: Array, end: Array, failed: Array) -> Array:
        """Return a mask of the requests that began after one for the same URL had failed."""
        import numpy as np

        found = np.zeros(len(urls), bool)
        for at in range(len(urls)) if self._failed or failed.any() else ():
            before = self._failed.get(urls[at], [])
            if before and before[0] <= begin[at]:
                found[at] = True
                before.pop(0)
            if failed[at] and len(self._failed) < FILES_KEPT:
                self._failed.setdefault(urls[at], before).append(int(end[at]))
        return found


class Misses:
    """What caches missed, and had missed in an earlier epoch: such a miss comes after a hit or a miss of another name.

    A file that is cached in blocks is missed many times in a row, once for each; a file that is missed when another one
    has been missed since is missed again.
    """

    def __init__(self) -> None:
        self._again = self._known = self._all = 0  # known: misses of names that are kept
        self._counts: dict[str, int] = {}
        self._last = ""

    @property
    def again(self) -> int:
        """How many misses were not a name's first; where there are more names than are kept, as of those that are."""
        return round(self._again * self._all / self._known) if self._known else 0

    def add(self, some: Columns) -> None:
        """Events of a process."""
        which = some.which(lambda key: key[0] == "miss" and layer(key[1]) != "index_cache")
        for where in some.where[which].tolist():
            url = some.urls[where]
            if url != self._last and url:
                count = self._counts.get(url, 0)
                self._all += 1
                self._again += count > 0
                if count or len(self._counts) < FILES_KEPT:
                    self._known += 1
                    self._counts[url] = count + 1
            self._last = url
