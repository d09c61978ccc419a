"""Findings: what costs time in a trace, each with a code that stays, the figures that it rests on, and what to do.

A rule looks at an analysis and gives a finding or nothing; what it takes to be worth telling is a constant beside it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from .facts import Calls, Facts
from .schema import READS, Analysis, Finding, Histogram
from .tables import FILES_KEPT

ENOUGH = 100
"""Of fewer calls nothing is concluded."""
MUCH = 16 * 1024 * 1024
"""F005: of fewer bytes too many nothing is said: an index takes so many once."""
FEW_STEPS = 5
"""F008: of fewer steps nothing is said: the first one starts the workers."""
SMALL_BITS = 16
SMALL_SHARE = 0.5
"""F001: this part of the reads is under 64 KiB."""
STAT_SHARE = 0.8
"""F002: this part of the opens comes after a stat of the same file."""
WAIT_SHARE = 0.2
"""F003: the waits for connections and locks make this part of the time in requests."""
HIT_RATE = 0.5
"""F004: fewer hits than that."""
AMPLIFICATION = 2.0
"""F005: bytes fetched for each byte asked for."""
RETRY_SHARE = 0.01
"""F006: this part of the requests was made again, or of the trace's time went to attempts that failed."""
SLOW_FACTOR = 2.0
"""F007: a process takes so many times as long for a call as the median of all."""
STALL_PERCENTAGE = 10.0
"""F008: this part of the steps' time is waiting for data."""
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

CONTAINERS = frozenset({"zip", "tar", "hdf5"})
METADATA = frozenset({"stat", "list", "walk", "open"})
GRAVITY = ("high", "medium", "low")


def find(analysis: Analysis, calls: Sequence[Calls], stats_first: int) -> list[Finding]:
    """All findings, the gravest first."""
    facts = Facts(analysis, calls, stats_first)
    found = [finding for rule in RULES if (finding := rule(facts)) is not None]
    return sorted(found, key=lambda finding: (GRAVITY.index(finding.severity), finding.code))


def small_reads(facts: Facts) -> Finding | None:
    """F001."""
    counts = facts.analysis.read_sizes.counts
    total, small = sum(counts), sum(counts[: SMALL_BITS + 1])
    if total < ENOUGH or small < SMALL_SHARE * total or not facts.matters(facts.seconds("fs")):
        return None
    packed = CONTAINERS & {row.layer for row in facts.rows("fs")}
    advice = (
        "The files are packed already: read a batch of them by one read_many, so that what lies close together comes "
        "in one request, or put a cache around (cache=)."
        if packed
        else "Pack the files into a zip (`fsabs.pack`), and read a batch of them by one read_many."
    )
    evidence: dict[str, float | int | str] = {
        "reads": total,
        f"reads under {Histogram.bounds(SMALL_BITS)[1] + 1} bytes": small,
        "their share": round(small / total, 4),
        "threshold": SMALL_SHARE,
    }
    title = f"small random reads dominate: {small / total:.0%} of {total:,} reads are under 64 KiB"
    return Finding("F001", "medium" if packed else "high", title, evidence, advice)


def stat_before_open(facts: Facts) -> Finding | None:
    """F002."""
    opens = facts.opens()
    if opens < ENOUGH or facts.stats_first < STAT_SHARE * opens or not facts.matters(facts.seconds("fs")):
        return None
    share = facts.stats_first / opens
    return Finding(
        "F002",
        "medium",
        f"{share:.0%} of opens stat first: {facts.stats_first:,} of {opens:,}",
        {"opens": opens, "after a stat": facts.stats_first, "share": round(share, 4), "threshold": STAT_SHARE},
        "Open the file and handle FileNotFoundError, in place of exists() before it; list(detail=True) gives names, "
        "sizes and times of a whole directory at once.",
    )


def waits(facts: Facts) -> Finding | None:
    """F003."""
    waiting = [row for row in facts.rows("wait") if row.layer != "steps"]
    seconds, requests = sum(row.seconds for row in waiting), facts.seconds("request")
    count = sum(row.calls for row in waiting)
    if count < ENOUGH or seconds < WAIT_SHARE * requests or not facts.matters(seconds):
        return None
    worst = max(waiting, key=lambda row: row.seconds)
    at_once = max((row.seconds / row.busy for row in facts.layers("request") if row.busy > 0), default=0.0)
    return Finding(
        "F003",
        "high",
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
    if rate is None or cache.hits + cache.misses < ENOUGH or rate >= HIT_RATE:
        return None
    small = cache.evictions > 0
    return Finding(
        "F004",
        "high" if small else "low",
        f"low cache hit rate: {rate:.0%} of {cache.hits + cache.misses:,}",
        {
            "hits": cache.hits,
            "misses": cache.misses,
            "evictions": cache.evictions,
            "hit rate": round(rate, 4),
            "threshold": HIT_RATE,
        },
        "The cache is too small for what is read over and over: give it more room, or read in an order that comes back "
        "sooner."
        if small
        else "Nothing was evicted: so looks a first epoch. Share the cache among processes, and keep it for the "
        "next run.",
    )


def read_amplification(facts: Facts) -> Finding | None:
    """F005."""
    amount = facts.analysis.amplification
    ratio = amount.ratio
    if ratio is None or amount.fetched is None or ratio < AMPLIFICATION or amount.fetched - amount.asked < MUCH:
        return None
    return Finding(
        "F005",
        "high" if ratio >= 2 * AMPLIFICATION else "medium",
        f"read amplification: {ratio:.1f} bytes are fetched for each that is asked for",
        {
            "bytes asked": amount.asked,
            "bytes fetched": amount.fetched,
            "ratio": round(ratio, 2),
            "threshold": AMPLIFICATION,
        },
        "Open with a smaller buffering= where files are read here and there; use smaller blocks in the cache; read "
        "whole members by read_bytes or read_many, which fetch exactly what they need.",
    )


def retries(facts: Facts) -> Finding | None:
    """F006."""
    analysis = facts.analysis
    requests = sum(row.calls for row in facts.rows("request"))
    costly = analysis.retry_seconds >= RETRY_SHARE * max(analysis.seconds, 1e-9)
    if not analysis.retries or not (costly or analysis.retries >= RETRY_SHARE * requests):
        return None
    return Finding(
        "F006",
        "high" if analysis.retry_seconds >= 10 * RETRY_SHARE * analysis.seconds else "medium",
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


def slow_process(facts: Facts) -> Finding | None:
    """F007."""
    busy = [one for one in facts.calls if one.calls >= ENOUGH // 2]
    if len(busy) < 3:
        return None
    slowest = max(busy, key=lambda one: one.each)
    # Not those of other epochs, where workers are started for each: what they read may have been cached by then.
    beside = [one.each for one in busy if one.ran_beside(slowest)]
    median = statistics.median(beside)
    if len(beside) < 3 or not median or slowest.each < SLOW_FACTOR * median:
        return None
    return Finding(
        "F007",
        "medium",
        f"one slow worker: {slowest.label} takes {slowest.each / median:.1f} times as long for a call as the median",
        {
            "worker": slowest.label,
            "milliseconds a call": round(slowest.each * 1e3, 4),
            "median of all": round(median * 1e3, 4),
            "threshold": SLOW_FACTOR,
        },
        "If it stays the same one, look at its machine and its part of the data; if it changes, look for files that "
        "are much larger than the others.",
    )


def data_stall(facts: Facts) -> Finding | None:
    """F008."""
    stall = facts.analysis.stall
    if stall is None or stall.steps < FEW_STEPS or stall.percentage < STALL_PERCENTAGE:
        return None
    return Finding(
        "F008",
        "high" if stall.percentage >= 3 * STALL_PERCENTAGE else "medium",
        f"data stall: {stall.percentage:.0f} % of the steps' time is waiting for data",
        {
            "steps": stall.steps,
            "seconds of waiting": round(stall.wait, 3),
            "seconds of computing": round(stall.compute, 3),
            "percentage": round(stall.percentage, 2),
            "threshold": STALL_PERCENTAGE,
        },
        "More DataLoader workers or prefetching hide the waiting, as far as the other findings don't remove it.",
    )


def opened_again(facts: Facts) -> Finding | None:
    """F009."""
    opens, files = facts.opens(), facts.analysis.files_seen
    if opens < ENOUGH or not 0 < files < FILES_KEPT or opens < OPENS_PER_FILE * files:
        return None
    return Finding(
        "F009",
        "low",
        f"files are opened again and again: {opens / files:.0f} times each",
        {"opens": opens, "files": files, "opens of a file": round(opens / files, 1), "threshold": OPENS_PER_FILE},
        "Keep what is read often open, or in a cache (cache=): an open file may be shared by threads and processes.",
    )


def failures(facts: Facts) -> Finding | None:
    """F010."""
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
    few = sum(row.calls for row in facts.rows("decompress")) < ENOUGH
    if few or inflating < DECOMPRESS_SHARE * calls or not facts.matters(inflating):
        return None
    return Finding(
        "F011",
        "medium",
        f"decompression takes {inflating:.1f} s, {inflating / max(calls, 1e-9):.0%} of the time in calls",
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
    return Finding(
        "F012",
        "medium",
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
    requests, connects = (sum(row.calls for row in facts.rows(kind)) for kind in ("request", "connect"))
    if min(requests, connects) < ENOUGH or connects < CONNECT_SHARE * requests:
        return None
    return Finding(
        "F013",
        "medium",
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
    few = sum(row.calls for row in asking) < ENOUGH
    if few or spent < METADATA_SHARE * total or not facts.matters(spent):
        return None
    return Finding(
        "F014",
        "medium",
        f"finding files takes longer than reading them: {spent / total:.0%} of the time is stat, list and open",
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
    return Finding(
        "F015",
        "high",
        f"one request at a time: {worst.seconds / worst.busy:.1f} in flight in a process, {worst.p50 * 1e3:.1f} ms",
        {
            "requests": worst.calls,
            "in flight": round(worst.seconds / worst.busy, 2),
            "p50 in milliseconds": round(worst.p50 * 1e3, 3),
            "threshold": ONE_AT_A_TIME,
        },
        "Each read waits for the one before: ask for a batch by read_many, which has many requests in flight, or use "
        "more workers.",
    )


def dropped(facts: Facts) -> Finding | None:
    """F016."""
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


RULES: tuple[Callable[[Facts], Finding | None], ...] = (
    small_reads, stat_before_open, waits, cache_misses, read_amplification, retries, slow_process, data_stall,
    opened_again, failures, decompression, tail, reconnects, metadata, one_at_a_time, dropped,
)  # fmt: skip
