"""The rules of findings about reading: how files are found, opened, fetched, cached and decompressed.

What one costs is its share of the time in which a store is waited for (`Facts.of_storage`).
"""

from __future__ import annotations

from .facts import Facts, Rule, share
from .results import (
    Finding,
    Histogram,
)
from .schema import (
    METADATA,
    READS,
)
from .tables import FILES_KEPT

ENOUGH = 100
"""Of fewer calls nothing is concluded."""
MUCH = 16 * 1024 * 1024
"""F005: of fewer bytes too many nothing is said: an index takes so many once."""
SMALL_BITS = 16
SMALL_SHARE = 0.5
"""F001: this part of the reads is under 64 KiB."""
STAT_SHARE = 0.8
"""F002: this part of the opens comes after a stat of the same file."""
WAIT_SHARE = 0.2
"""F003: the waits for connections and locks make this part of the time in requests."""
HIT_RATE = 0.5
"""F004: fewer hits than that, and entries were evicted."""
AMPLIFICATION = 2.0
"""F005: bytes fetched for each byte asked for."""
RETRY_SHARE = 0.01
"""F006: this part of the requests was made again, or of the trace's time went to attempts that failed."""
OPENS_PER_FILE = 10.0
"""F009: a file is opened so many times."""
ERROR_SHARE = 0.01
"""F010: this part of the user's calls fails."""
DECOMPRESS_SHARE = 0.3
"""F011: decompression takes this part of the time in the user's calls."""
TAIL_FACTOR = 20.0
"""F012: one request of a hundred takes so many times as long as the typical one."""
CONNECT_SHARE = 0.2
"""F013: so many new connections for each request."""
METADATA_SHARE = 0.5
"""F014: stat, list and open take this part of the time in the user's calls."""
ONE_AT_A_TIME = 1.5
"""F015: so many requests of a process are in flight while any is, and ..."""
SLOW_REQUEST = 0.001
"""... the typical one takes so many seconds."""
IN_FLIGHT = 8
"""Requests that `read_many` has in flight at least: what reading one after the other costs is estimated by it."""
COLD_SHARE = 0.05
"""F017: the first epoch waits so much longer for the store, as a part of all steps' time, than the best one."""

CONTAINERS = frozenset({"zip", "tar", "hdf5"})


def _share_of_small(facts: Facts) -> float:
    counts = facts.analysis.read_sizes.counts
    small = share(sum(counts[: SMALL_BITS + 1]), sum(counts))
    return small if sum(counts) >= ENOUGH and small >= SMALL_SHARE else 0.0


def small_reads(facts: Facts) -> Finding | None:
    """F001."""
    small, total = _share_of_small(facts), sum(facts.analysis.read_sizes.counts)
    if not small:
        return None
    return facts.finding(
        "F001",
        facts.of_storage(small * (1 - 1 / IN_FLIGHT)),
        f"small random reads dominate: {small:.0%} of {total:,} reads are under 64 KiB",
        {
            "reads": total,
            f"reads under {Histogram.bounds(SMALL_BITS)[1] + 1} bytes": round(small * total),
            "their share": round(small, 4),
            "threshold": SMALL_SHARE,
        },
        _advice_on_small_reads(facts),
    )


def _advice_on_small_reads(facts: Facts) -> str:
    packed = CONTAINERS & {row.layer for row in facts.rows("fs")}
    if not facts.batched:
        together = "read a batch of them by one read_many, so that what lies close together comes in one request."
        return (
            f"The files are packed already: {together}" if packed else f"Pack the files (`fsabs.pack`), and {together}"
        )
    if not packed:
        return "They are read by read_many already: pack them (`fsabs.pack`), so that neighbours come in one request."
    if not facts.cached:
        return "They are packed and read by read_many already: put a cache around (cache=) for the epochs that follow."
    return "They are packed, read by read_many and cached already: fill the cache before training by its `warm()`."


def stat_before_open(facts: Facts) -> Finding | None:
    """F002."""
    opens = facts.opens()
    if opens < ENOUGH or facts.stats_first < STAT_SHARE * opens:
        return None
    asking = sum(row.seconds for row in facts.rows("fs") if row.operation == "stat")
    return facts.finding(
        "F002",
        facts.of_storage(share(asking, facts.seconds("fs"))),
        f"{facts.stats_first / opens:.0%} of opens stat first: {facts.stats_first:,} of {opens:,}",
        {
            "opens": opens,
            "after a stat": facts.stats_first,
            "share": round(facts.stats_first / opens, 4),
            "threshold": STAT_SHARE,
        },
        "Open the file and handle FileNotFoundError, in place of exists() before it; list(detail=True) gives names, "
        "sizes and times of a whole directory at once.",
    )


def waits(facts: Facts) -> Finding | None:
    """F003."""
    waiting = [row for row in facts.rows("wait") if row.layer != "steps"]
    seconds, requests = sum(row.seconds for row in waiting), facts.seconds("request")
    count = sum(row.calls for row in waiting)
    if count < ENOUGH or seconds < WAIT_SHARE * requests:
        return None
    worst = max(waiting, key=lambda row: row.seconds)
    at_once = max((row.seconds / row.busy for row in facts.layers("request") if row.busy > 0), default=0.0)
    return facts.finding(
        "F003",
        facts.of_storage(share(seconds, seconds + requests)),
        f"workers wait on {'one connection' if at_once < ONE_AT_A_TIME else 'one another'}: {seconds:.1f} s in "
        f"{worst.layer}.{worst.operation}",
        {
            "waits": count,
            "seconds of waiting": round(seconds, 3),
            "seconds of requests": round(requests, 3),
            "requests in flight": round(at_once, 2),
            "threshold": WAIT_SHARE,
        },
        "Allow more connections (the backend's option), or share one FS among fewer threads.",
    )


def cache_misses(facts: Facts) -> Finding | None:
    """F004."""
    cache = facts.analysis.cache
    rate = cache.hit_rate
    if rate is None or cache.hits + cache.misses < ENOUGH or rate >= HIT_RATE or not cache.evictions:
        return None
    return facts.finding(
        "F004",
        facts.of_storage(share(cache.evictions, cache.misses)),
        f"the cache is too small: {rate:.0%} of {cache.hits + cache.misses:,} lookups are hits",
        {
            "hits": cache.hits,
            "misses": cache.misses,
            "evictions": cache.evictions,
            "hit rate": round(rate, 4),
            "threshold": HIT_RATE,
        },
        "Give it more room (max_bytes=), share one folder among the processes of a machine, or tell it the order of "
        "reading (`set_order`, which the data sets of `fsabs.adapters.torch` do).",
    )


def read_amplification(facts: Facts) -> Finding | None:
    """F005."""
    amount = facts.analysis.amplification
    ratio = amount.ratio
    if ratio is None or amount.fetched is None or ratio < AMPLIFICATION or amount.fetched - amount.asked < MUCH:
        return None
    return facts.finding(
        "F005",
        facts.of_storage(1 - 1 / ratio),
        f"read amplification: {ratio:.1f} bytes are fetched for each that is asked for",
        {
            "bytes asked": amount.asked,
            "bytes fetched": amount.fetched,
            "ratio": round(ratio, 2),
            "threshold": AMPLIFICATION,
        },
        "Read in the order in which things are stored, or whole members by read_bytes or read_many, which fetch what "
        "they need and no more; open with a smaller buffering= where files are read here and there; use smaller blocks "
        "in the cache.",
    )


def retries(facts: Facts) -> Finding | None:
    """F006."""
    analysis = facts.analysis
    requests = facts.count("request")
    costly = analysis.retry_seconds >= RETRY_SHARE * max(analysis.seconds, 1e-9)
    if not analysis.retries or not (costly or analysis.retries >= RETRY_SHARE * requests):
        return None
    return facts.finding(
        "F006",
        facts.of_storage(share(analysis.retry_seconds, facts.seconds("request"))),
        f"retries cost {analysis.retry_seconds:.1f} s: {analysis.retries:,} attempts were made again",
        {
            "retries": analysis.retries,
            "requests": requests,
            "seconds of failed attempts": round(analysis.retry_seconds, 3),
            "threshold": RETRY_SHARE,
        },
        "Look at the errors of the slowest requests: timeouts and 503 (slow down) mean that the store has more to do "
        "than it can; fewer connections may then be faster.",
    )


def opened_again(facts: Facts) -> Finding | None:
    """F009."""
    opens, files = facts.opens(), facts.analysis.files_seen
    if facts.cached or opens < ENOUGH or not 0 < files < FILES_KEPT or opens < OPENS_PER_FILE * files:
        return None
    return facts.finding(
        "F009",
        facts.of_storage(1 - files / opens),
        f"files are opened again and again: {opens / files:.0f} times each",
        {"opens": opens, "files": files, "opens of a file": round(opens / files, 1), "threshold": OPENS_PER_FILE},
        "Keep what is read often open, or in a cache (cache=): an open file may be shared by threads and processes.",
    )


def failures(facts: Facts) -> Finding | None:
    """F010: its cost is not known."""
    rows = facts.rows("fs")
    calls, errors = sum(row.calls for row in rows), sum(row.errors for row in rows)
    if calls < ENOUGH or errors < ERROR_SHARE * calls:
        return None
    worst = max(rows, key=lambda row: row.errors)
    return Finding(
        "F010",
        "medium",
        f"{errors / calls:.1%} of the calls fail, most of them in {worst.layer}.{worst.operation}",
        {"calls": calls, "errors": errors, "share": round(errors / calls, 4), "threshold": ERROR_SHARE},
        "The table of files says which ones; each event has the name of its exception. A FileNotFoundError may be an "
        "answer: where files are looked for by opening them, nothing is wrong.",
    )


def decompression(facts: Facts) -> Finding | None:
    """F011."""
    inflating, calls = facts.seconds("decompress"), facts.seconds("fs")
    if facts.count("decompress") < ENOUGH or inflating < DECOMPRESS_SHARE * calls:
        return None
    return facts.finding(
        "F011",
        facts.lost("decompression"),
        f"decompression takes {inflating:.1f} s, {share(inflating, calls):.0%} of the time in calls",
        {"seconds": round(inflating, 3), "seconds of calls": round(calls, 3), "threshold": DECOMPRESS_SHARE},
        "Store what is compressed already (JPEG, PNG, Opus) without compression: `fsabs.pack` does; isal makes inflate "
        "two to three times as fast (pip install 'fsabs[speed]').",
    )


def tail(facts: Facts) -> Finding | None:
    """F012."""
    rows = [row for row in facts.rows("request") if row.calls >= ENOUGH and row.p99 >= TAIL_FACTOR * row.p50 > 0]
    if not rows:
        return None
    worst = max(rows, key=lambda row: row.p99 / row.p50)
    return facts.finding(
        "F012",
        facts.of_storage(share(worst.seconds - worst.calls * worst.p50, facts.seconds("request"))),
        f"a slow tail: one {worst.layer}.{worst.operation} in a hundred takes {worst.p99 / worst.p50:.0f} times as "
        "long as the typical one",
        {
            "p50 in milliseconds": round(worst.p50 * 1e3, 3),
            "p99 in milliseconds": round(worst.p99 * 1e3, 3),
            "threshold": TAIL_FACTOR,
        },
        "A batch waits for its slowest request: prefetch further ahead, and look at the slowest requests for what they "
        "have in common.",
    )


def reconnects(facts: Facts) -> Finding | None:
    """F013."""
    requests, connects = facts.count("request"), facts.count("connect")
    if min(requests, connects) < ENOUGH or connects < CONNECT_SHARE * requests:
        return None
    return facts.finding(
        "F013",
        facts.of_storage(share(facts.seconds("connect"), facts.seconds("connect") + facts.seconds("request"))),
        f"connections are not kept: {connects:,} new ones for {requests:,} requests",
        {
            "requests": requests,
            "connections": connects,
            "seconds of connecting": round(facts.seconds("connect"), 3),
            "threshold": CONNECT_SHARE,
        },
        "Make one FS and share it, in place of a from_url for each file; look whether a proxy closes connections.",
    )


def metadata(facts: Facts) -> Finding | None:
    """F014."""
    rows = [row for row in facts.rows("fs") if row.operation in METADATA | READS]
    asking = [row for row in rows if row.operation in METADATA]
    spent, total = sum(row.seconds for row in asking), sum(row.seconds for row in rows)
    if sum(row.calls for row in asking) < ENOUGH or spent < METADATA_SHARE * total:
        return None
    return facts.finding(
        "F014",
        facts.of_storage(share(spent, total)),
        f"finding files takes longer than reading them: {share(spent, total):.0%} of the time is stat, list and open",
        {"seconds of stat, list, open": round(spent, 3), "of": round(total, 3), "threshold": METADATA_SHARE},
        "Pack small files into a container, whose index is read once; read whole files by read_bytes or read_many.",
    )


def one_at_a_time(facts: Facts) -> Finding | None:
    """F015."""
    slow = [
        row
        for row in facts.layers("request")
        if row.calls >= ENOUGH and row.p50 >= SLOW_REQUEST and 0 < row.seconds < ONE_AT_A_TIME * row.busy
    ]
    if not slow:
        return None
    worst = max(slow, key=lambda row: row.seconds)
    at_once = worst.seconds / worst.busy
    return facts.finding(
        "F015",
        facts.of_storage((1 - at_once / IN_FLIGHT) * (1 - _share_of_small(facts))),  # F001 has the small ones
        f"one request at a time: {at_once:.1f} in flight in a process, {worst.p50 * 1e3:.1f} ms",
        {
            "requests": worst.calls,
            "in flight": round(at_once, 2),
            "p50 in milliseconds": round(worst.p50 * 1e3, 3),
            "threshold": ONE_AT_A_TIME,
        },
        "Each read waits for the one before: ask for a batch by read_many, which has many requests in flight, or use "
        "more workers.",
    )


def dropped(facts: Facts) -> Finding | None:
    """F016: it costs no time."""
    analysis = facts.analysis
    if not analysis.dropped:
        return None
    return Finding(
        "F016",
        "low",
        f"{analysis.dropped:,} events were dropped; the table's counts have them, the other figures don't",
        {"dropped": analysis.dropped, "read": analysis.events, "threshold": 0},
        "Trace with detail='histograms', or with a larger max_bytes.",
    )


def cold_cache(facts: Facts) -> Finding | None:
    """F017."""
    waited = [epoch.parts["storage"] for epoch in facts.epochs]
    cache = facts.analysis.cache
    if not facts.cached or cache.evictions or not waited or waited[0] - min(waited) < COLD_SHARE * facts.total():
        return None
    return facts.finding(
        "F017",
        waited[0] - min(waited),
        f"the first epoch fills the cache: it waits {waited[0]:.1f} s for the store, the best one {min(waited):.1f} s",
        {
            "seconds in the first epoch": round(waited[0], 3),
            "seconds in the best one": round(min(waited), 3),
            "misses": cache.misses,
            "threshold": COLD_SHARE,
        },
        "Fill the cache before training, with many requests in flight: `fs.warm()`, or `fsabs cache warm`; or read "
        "ahead by `prefetch`. Keep its folder for the next run.",
    )


RULES: tuple[Rule, ...] = (
    small_reads, stat_before_open, waits, cache_misses, read_amplification, retries, opened_again, failures,
    decompression, tail, reconnects, metadata, one_at_a_time, dropped, cold_cache,
)  # fmt: skip
