"""The rules of findings, as rows: a condition, a cost by a stated model, the figures that show it, and what to do.

The code of a rule stays, for scripts and documents. Where the advice is followed already, the condition doesn't hold.
What costs less than a second, or less than 5 % of the time, is a note; less than 1 % is nothing. Costs of several
findings may overlap: two causes of the same waiting may each have most of it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import NamedTuple

from .facts import IN_FLIGHT, Batches, Facts, share
from .results import CAUSES, STORE, WAITS, Finding, Row
from .schema import METADATA, READS
from .tables import FILES_KEPT

ENOUGH = 100
"""Of fewer calls nothing is concluded."""
FEW_STEPS = 5
"""Of fewer steps nothing is said about their parts: the first one starts the workers."""
WORTH = 0.01
"""The least part of the time that is worth reporting."""
NOTE = (1.0, 0.05)
"""What costs fewer seconds, or a smaller part of the time, is a note."""
HIGH = 0.2
"""The part of the time from which a finding is grave."""
SMALL_BITS, SMALL_SHARE = 16, 0.5
"""F001: this part of the reads is under 64 KiB."""
ONE_AT_A_TIME = 1.5
"""F001, F015: so many requests of a process are in flight while any is."""
STAT_SHARE = 0.8
"""F002: this part of the opens comes after a stat of the same file."""
AGAIN_SHARE = 0.3
"""F004: this part of a cache's misses is of what was missed in an earlier epoch."""
AMPLIFICATION, MUCH = 2.0, 16 * 1024 * 1024
"""F005, F024: bytes fetched for each byte asked for, and bytes too many."""
FRAGMENT = 16 * 1024
"""F024: the mean read of a file that is read here and there."""
RETRY_SHARE = 0.01
"""F006: this part of the requests was made again."""
SLOW_FACTOR = 2.0
"""F007: a worker takes so many times as long for a batch as the median of all."""
STALL = 0.1
"""F008: this part of the steps' time is waiting for data."""
OPENS_PER_FILE = 10.0
"""F009: a file is opened so many times."""
ERROR_SHARE = 0.01
"""F010: this part of the user's calls fails."""
TAIL_FACTOR = 20.0
"""F012: one request of a hundred takes so many times as long as the typical one."""
CODE_SHARE = 0.1
"""F018: the program's own code takes this part of the steps' time."""
ON_THE_WAY = 0.1
"""F020: this part of the time, batches are on their way."""
SLOW_REQUEST = 0.001
"""F015: the typical request takes so many seconds."""
CROWDED = 1.5
"""F027: so many workers for each CPU."""

MORE_WORKERS = frozenset({"F008", "F022"})
"""Not given where a cause of the same waiting costs a third as much: more workers would hide it."""
OTHER_TIME = frozenset({"F019", "F020", "F021", "F026"})
"""Findings about time that more workers don't change."""

Evidence = Mapping[str, float | int | str]


class Rule(NamedTuple):
    """A row of the table; functions are of the facts of a trace."""

    code: str
    holds: Callable[[Facts], object]
    cost: Callable[[Facts], float] | None
    """Seconds; None for what is a note, whatever it costs."""
    title: str
    """A format string of the figures: `{0[requests]:,}`."""
    figures: Callable[[Facts], Evidence]
    """What the finding rests on, by names for people."""
    advice: str
    model: str = ""
    """How the cost is computed; a sentence."""

    def find(self, facts: Facts) -> Finding | None:
        """Return the finding, if there is one that is worth reporting."""
        if not facts.total or not self.holds(facts):
            return None
        seconds = self.cost(facts) if self.cost is not None else 0.0
        part = seconds / facts.total
        if self.cost is not None and part < WORTH:
            return None
        severity = "note" if seconds < NOTE[0] or part < NOTE[1] else "high" if part >= HIGH else "medium"
        figures = self.figures(facts)
        shown = {name: round(value, 4) if isinstance(value, float) else value for name, value in figures.items()}
        return Finding(self.code, severity, self.title.format(figures), shown, self.advice, seconds, self.model)


def find(facts: Facts) -> list[Finding]:
    """Return all findings, the most expensive first."""
    found = [finding for rule in RULES if (finding := rule.find(facts)) is not None]
    for general in [finding for finding in found if finding.code in MORE_WORKERS]:
        causes = [finding for finding in found if finding.code not in MORE_WORKERS | OTHER_TIME]
        if any(cause.seconds >= general.seconds / 3 for cause in causes):
            found.remove(general)
    return sorted(found, key=lambda finding: (-finding.seconds, finding.code))


# ---- what several rules look at


def _small(facts: Facts) -> float:
    """Return the part of the reads that are small, 0 where they are few."""
    counts = facts.analysis.read_sizes.counts
    return share(sum(counts[: SMALL_BITS + 1]), sum(counts)) if sum(counts) >= ENOUGH else 0.0


def _serial(facts: Facts) -> bool:
    row = facts.requests
    alone = row is not None and row.calls >= ENOUGH and 0 < facts.in_flight < ONE_AT_A_TIME
    return alone and _called(facts, "read_many") < 0.5 * _called(facts, *READS) and not _seeks(facts)


def _small_and_serial(facts: Facts) -> bool:
    return _serial(facts) and _small(facts) >= SMALL_SHARE


def _in_flight_cost(facts: Facts) -> float:
    """As many requests, `IN_FLIGHT` at once, but no faster than the most bytes a second that were seen."""
    row = facts.requests
    assert row is not None
    peak = max(facts.analysis.timeline.fetched, default=0.0)
    least = share(row.bytes, peak * row.busy) if peak and row.p50 < row.seconds / row.calls / 2 else 0.0
    return facts.saved_of_store(1 - max(facts.in_flight / IN_FLIGHT, least))


def _of_requests(facts: Facts) -> Evidence:
    row = facts.requests
    assert row is not None
    waited, typical = facts.lost(*STORE), row.p50 * 1e3
    flying = facts.in_flight
    return {"requests": row.calls, "in flight": flying, "seconds of waiting": waited, "p50 in milliseconds": typical}


def _ratio(facts: Facts) -> float:
    """Return the bytes fetched for each byte asked for, 0 where that is not too much."""
    amount = facts.analysis.amplification
    ratio, fetched = amount.ratio or 0.0, amount.fetched or 0
    return ratio if ratio >= AMPLIFICATION and fetched - amount.asked >= MUCH else 0.0


def _seeks(facts: Facts) -> bool:
    """Return whether most of what is asked for are small pieces of files, for which much more is fetched."""
    rows = [row for row in facts.rows("fs") if row.operation == "read"]
    calls, data = sum(row.calls for row in rows), sum(row.bytes for row in rows)
    fragments = calls >= ENOUGH and data < FRAGMENT * calls and data > 0.5 * facts.analysis.amplification.asked
    return fragments and _ratio(facts) > 0


def _transfer_cost(facts: Facts) -> float:
    causes = ("transfer",) if facts.lost("transfer") + facts.outside("transfer") else STORE
    return facts.saved(*causes, part=1 - 1 / max(1.0, _ratio(facts)))


def _cost_of_seeks(facts: Facts) -> float:
    if not facts.lost("transfer") + facts.outside("transfer"):
        return _transfer_cost(facts)
    return _transfer_cost(facts) + facts.saved("first_byte", part=1 - facts.in_flight / IN_FLIGHT)


def _amplified(facts: Facts) -> Evidence:
    amount = facts.analysis.amplification
    return {"bytes asked": amount.asked, "bytes fetched": amount.fetched or 0, "ratio": _ratio(facts)}


def _failed_cost(facts: Facts) -> float:
    again = share(facts.for_data.again, facts.for_data.busy)
    return facts.saved("throttle", "backoff") + facts.saved("first_byte", "transfer", part=again)


def _of_retries(facts: Facts) -> Evidence:
    analysis, lost = facts.analysis, facts.lost("throttle", "backoff") + facts.outside("throttle", "backoff")
    return {
        "retries": analysis.retries, "requests": facts.count("request"),
        "seconds of failed attempts": analysis.retry_seconds, "seconds held back": lost,
    }  # fmt: skip


def _throttled(facts: Facts) -> bool:
    return bool(facts.analysis.retries) and any(row.operation == "throttle" for row in facts.rows("wait"))


def _slowest_worker(facts: Facts) -> tuple[Batches, float] | None:
    """Return the slowest of at least three workers that ran side by side, and the median of their times."""
    if len(facts.batches) < 3:
        return None
    slowest = max(facts.batches, key=lambda one: one.each)
    # Not those of other epochs, where workers are started for each: what they read may have been cached by then.
    beside = [one.each for one in facts.batches if one.ran_beside(slowest)]
    median = statistics.median(beside) if len(beside) >= 3 else 0.0
    return (slowest, median) if median and slowest.each >= SLOW_FACTOR * median else None


def _slow_worker_cost(facts: Facts) -> float:
    found = _slowest_worker(facts)
    assert found is not None
    return facts.saved(*WAITS, part=1 - found[1] / found[0].each) if facts.epochs else found[0].seconds - found[1]


def _of_slow_worker(facts: Facts) -> Evidence:
    found = _slowest_worker(facts)
    assert found is not None
    slowest, median = found
    times = slowest.each / median
    each, typical = slowest.each * 1e3, median * 1e3
    return {"worker": slowest.label, "milliseconds a batch": each, "median of all": typical, "times": times}


def _more_workers(facts: Facts) -> int:
    """Return the fewest of twice, four and eight times as many workers that leave next to nothing more to save."""
    saved = {times * max(1, facts.workers): facts.of_workers(times * max(1, facts.workers)) for times in (2, 4, 8)}
    return min(workers for workers in saved if saved[workers] >= 0.9 * max(saved.values()))


def _in_steps(facts: Facts) -> float:
    return sum(row.seconds for row in facts.epochs)


def _steps(facts: Facts) -> bool:
    return facts.whole is not None and facts.whole.steps >= FEW_STEPS


def _workers_wait(facts: Facts) -> bool:
    """Return whether workers make batches, and wait for most of their time."""
    waiting, stalled = facts.lost(*STORE, "list", "disk"), facts.waits >= STALL * _in_steps(facts)
    return _steps(facts) and bool(facts.workers) and stalled and waiting >= 0.5 * facts.waits and not _serial(facts)


def _own_code(facts: Facts) -> bool:
    shared = facts.threads >= 2 and not facts.workers  # F023
    much = facts.lost("decode") >= (CODE_SHARE * _in_steps(facts) if facts.workers else 0.5 * facts.waits)  # else F022
    return _steps(facts) and much and not shared and not _slowest_worker(facts)


def _cost_of_code(facts: Facts) -> float:
    """More workers up to the CPUs; where there are as many, all of it."""
    few = facts.workers < facts.cores
    return facts.of_workers(facts.cores) if few else facts.saved("decode")


def _tail(facts: Facts) -> Row | None:
    rows = [row for row in facts.rows("request") if row.calls >= ENOUGH and row.p99 >= TAIL_FACTOR * row.p50 > 0]
    return max(rows, key=lambda row: row.p99 / row.p50, default=None)


def _of_tail(facts: Facts) -> Evidence:
    row = _tail(facts)
    assert row is not None
    times = row.p99 / row.p50
    return {"p50 in milliseconds": row.p50 * 1e3, "p99 in milliseconds": row.p99 * 1e3, "times": times}


def _tail_cost(facts: Facts) -> float:
    return facts.saved_of_store(share(facts.for_data.slow, facts.for_data.busy))


def _called(facts: Facts, *operations: str) -> float:
    """Return the seconds in the user's calls that are one of `operations`."""
    return sum(row.seconds for row in facts.rows("fs") if row.operation in operations)


def _cost_of_misses(facts: Facts) -> float:
    """Misses of one call are waited for together, so that the time of an epoch isn't divided by their numbers."""
    if len(facts.epochs) > 1:
        later = sum(epoch.causes[cause] for epoch in facts.epochs[1:] for cause in STORE)
        return facts.saved_of_store(share(later, facts.lost(*STORE)))
    return facts.saved_of_store(share(facts.missed_again, facts.analysis.cache.misses))


def _cold(facts: Facts) -> float:
    """Return the seconds for which the first epoch waits longer for the store than the best one."""
    waited = [sum(epoch.causes[cause] for cause in STORE) for epoch in facts.epochs]
    return waited[0] - min(waited[1:]) if len(waited) > 1 else 0.0


def _errors(facts: Facts) -> int:
    return sum(row.errors for row in facts.rows("fs"))


def _clocks(facts: Facts) -> str:
    return next((note for note in facts.analysis.notes if note.startswith("the clock of")), "")


def _seconds(cause: str) -> Callable[[Facts], Evidence]:
    return lambda facts: {"seconds": facts.lost(cause), "share": share(facts.lost(cause), facts.total)}


# ---- the table

RULES: tuple[Rule, ...] = (
    Rule(
        "F001",
        _small_and_serial,
        _in_flight_cost,
        "small reads, one after the other: {0[small]:.0%} of the reads are under 64 KiB",
        lambda f: {"small": _small(f), **_of_requests(f)},
        "Read a batch of them by one `read_many`, which has many requests in flight; files that are packed into a zip "
        "or tar (`fsabs.pack`) and lie side by side come in one request.",
        f"The same requests with {IN_FLIGHT} of them in flight.",
    ),
    Rule(
        "F002",
        lambda f: f.opens >= ENOUGH and f.stats_first >= STAT_SHARE * f.opens,
        lambda f: f.saved("list", part=share(_called(f, "stat"), _called(f, *METADATA))),
        "opens stat first: {0[after a stat]:,} of {0[opens]:,}",
        lambda f: {"opens": f.opens, "after a stat": f.stats_first},
        "Open the file and handle FileNotFoundError, in place of exists() before it; list(detail=True) gives names, "
        "sizes and times of a whole directory at once.",
        "The time of listing and opening without that of the stats.",
    ),
    Rule(
        "F004",
        lambda f: f.analysis.cache.misses >= ENOUGH and f.missed_again >= AGAIN_SHARE * f.analysis.cache.misses,
        _cost_of_misses,
        "the cache is too small: {0[missed again]:,} of {0[misses]:,} misses are of what it had missed before",
        lambda f: {
            "hits": f.analysis.cache.hits,
            "misses": f.analysis.cache.misses,
            "missed again": f.missed_again,
        },
        "Give it more room (max_bytes=), or share one folder among the processes of a machine.",
        "Epochs after the first would not wait for the store; of one epoch, each miss costs the same.",
    ),
    Rule(
        "F005",
        lambda f: _ratio(f) and not _seeks(f),
        _transfer_cost,
        "read amplification: {0[ratio]:.1f} bytes are fetched for each that is asked for",
        _amplified,
        "Read in the order in which things are stored, or whole members by read_bytes or read_many, which fetch what "
        "they need and no more; use smaller blocks in the cache.",
        "Transfer takes as long as it has bytes; only those asked for would be fetched.",
    ),
    Rule(
        "F006",
        lambda f: f.analysis.retries >= max(1, RETRY_SHARE * f.count("request")) and not _throttled(f),
        _failed_cost,
        "retries: {0[retries]:,} attempts of {0[requests]:,} were made again",
        _of_retries,
        "Look at the errors of the slowest requests: timeouts and cut connections are the network's or a proxy's.",
        "Without the time in which only attempts after a failed one were under way, and the waiting before them.",
    ),
    Rule(
        "F007",
        _slowest_worker,
        _slow_worker_cost,
        "one slow worker: {0[worker]} takes {0[times]:.1f} times as long as the median",
        _of_slow_worker,
        "Batches come in order, so that all workers wait for it. If it stays the same one, look at its machine and its "
        "part of the data; if it changes, look for files that are much larger than the others.",
        "All workers take as long as the median.",
    ),
    Rule(
        "F008",
        _workers_wait,
        lambda f: f.of_workers(_more_workers(f)),
        "too few workers: {0[better]} in place of {0[workers]} would wait for less",
        lambda f: {
            "workers": f.workers,
            "better": _more_workers(f),
            "CPUs": f.cores,
            **{f"seconds of {CAUSES[cause]}": f.lost(cause) for cause in WAITS if f.lost(cause)},
        },
        "More workers hide the waiting for a store (num_workers=), as far as the other findings don't remove it.",
        "Waiting is divided by more workers, decoding by CPUs.",
    ),
    Rule(
        "F009",
        lambda f: (
            not f.cached
            and f.opens >= ENOUGH
            and 0 < f.analysis.files_seen < FILES_KEPT
            and f.opens >= OPENS_PER_FILE * f.analysis.files_seen
        ),
        lambda f: f.saved(*STORE, "list", "disk", part=1 - f.analysis.files_seen / f.opens),
        "files are opened again and again: {0[opens of a file]:.0f} times each",
        lambda f: {"files": f.analysis.files_seen, "opens of a file": f.opens / f.analysis.files_seen},
        "Keep what is read often open, or in a cache (cache=): an open file may be shared by threads and processes.",
        "Each file is opened and read once.",
    ),
    Rule(
        "F010",
        lambda f: f.count("fs") >= ENOUGH and _errors(f) >= ERROR_SHARE * f.count("fs"),
        None,
        "{0[errors]:,} of {0[calls]:,} calls fail",
        lambda f: {"calls": f.count("fs"), "errors": _errors(f)},
        "The table of files says which ones; each event has the name of its exception. A FileNotFoundError may be an "
        "answer: where files are looked for by opening them, nothing is wrong.",
    ),
    Rule(
        "F011",
        lambda f: f.count("decompress") >= ENOUGH,
        lambda f: f.saved("decompress"),
        "decompression takes {0[seconds]:.1f} s, {0[share]:.0%} of the time",
        _seconds("decompress"),
        "Store what is compressed already (JPEG, PNG, Opus) without compression: `fsabs.pack` does; isal makes inflate "
        "two to three times as fast (pip install 'fsabs[speed]').",
        "What is stored without compression takes no time to decompress.",
    ),
    Rule(
        "F012",
        lambda f: _tail(f) and not _throttled(f),
        _tail_cost,
        "a slow tail: one request in a hundred takes {0[times]:.0f} times as long as the typical one",
        _of_tail,
        "A batch waits for its slowest request: prefetch further ahead, and look at the slowest requests for what they "
        "have in common.",
        "Without the time in which only requests were under way that had taken twice as long as the typical one.",
    ),
    Rule(
        "F014",
        lambda f: f.calls(*METADATA) >= ENOUGH and _called(f, *METADATA) >= 0.5 * _called(f, *METADATA, *READS),
        lambda f: f.saved("list") - f.outside("list"),
        "finding files takes longer than reading them: {0[seconds of finding]:.1f} s",
        lambda f: {"seconds of finding": _called(f, *METADATA), "seconds of reading": _called(f, *READS)},
        "Pack small files into a container, whose index is read once; read whole files by read_bytes or read_many.",
        "Without listing and opening inside of steps.",
    ),
    Rule(
        "F015",
        lambda f: _serial(f) and not _small_and_serial(f) and f.requests is not None and f.requests.p50 >= SLOW_REQUEST,
        _in_flight_cost,
        "one request at a time: {0[in flight]:.1f} in flight in a process, {0[p50 in milliseconds]:.1f} ms each",
        _of_requests,
        "Each read waits for the one before: ask for a batch by read_many, which has many requests in flight, or use "
        "more workers.",
        f"The same requests with {IN_FLIGHT} of them in flight.",
    ),
    Rule(
        "F016",
        lambda f: f.analysis.dropped,
        None,
        "{0[dropped]:,} events were dropped; the table's counts have them, the other figures don't",
        lambda f: {"dropped": f.analysis.dropped, "read": f.analysis.events},
        "Trace with a larger max_bytes, or onto a disk with more room.",
    ),
    Rule(
        "F017",
        lambda f: f.cached and f.missed_again < AGAIN_SHARE * f.analysis.cache.misses,
        _cold,
        "the first epoch fills the cache: it waits {0[seconds]:.1f} s longer for the store than the best one",
        lambda f: {"seconds": _cold(f), "misses": f.analysis.cache.misses},
        "Fill the cache before training, with many requests in flight: `fs.warm()`, or `fsabs cache warm`; or read "
        "ahead by `prefetch`. Keep its folder for the next run.",
        "The first epoch waits for the store as long as the best one.",
    ),
    Rule(
        "F018",
        _own_code,
        _cost_of_code,
        "the program's own code (decoding, collating) takes {0[share]:.0%} of the time, the store {0[storage]:.0%}",
        lambda f: {
            **_seconds("decode")(f),
            "storage": share(f.lost(*STORE), f.total),
            "workers": f.workers,
            "CPUs": f.cores,
            **({"better": f.cores} if f.workers < f.cores else {}),
        },
        "As many workers as there are CPUs; from there on a cheaper decoder, smaller pictures, or samples that are "
        "decoded once and stored so. Time it with `fsabs.trace.span`.",
        "As many workers as CPUs; where there are as many, without that code.",
    ),
    Rule(
        "F019",
        _steps,
        lambda f: sum(epoch.causes["startup"] for epoch in f.epochs[1:]),
        "starting workers takes {0[seconds]:.3g} s, in {0[epochs]} epochs",
        lambda f: {"seconds": f.lost("startup"), "epochs": len(f.epochs)},
        "Keep the workers from one epoch to the next (persistent_workers=True); fork or forkserver starts them faster "
        "than spawn, which imports everything again and unpickles the data set.",
        "Workers are started for the first epoch only.",
    ),
    Rule(
        "F020",
        lambda f: _steps(f) and f.workers and share(f.lost("read_ahead"), f.total) >= ON_THE_WAY,
        lambda f: f.lost("read_ahead"),
        "batches on their way between processes take {0[share]:.0%} of the time",
        _seconds("read_ahead"),
        "While no worker works, a batch is pickled, copied or unpickled: return few large tensors in place of many "
        "small objects, uint8 in place of float32, and pin the memory in a thread (pin_memory=True).",
        "Without the time in which batches were on their way.",
    ),
    Rule(
        "F021",
        _steps,
        lambda f: f.lost("checkpoint"),
        "the steps stand still for {0[seconds]:.1f} s of writing",
        _seconds("checkpoint"),
        "Write checkpoints beside the training: `CheckpointManager.save_async` copies the state, and a thread writes.",
        "Without the time of writing inside of steps.",
    ),
    Rule(
        "F022",
        lambda f: _steps(f) and not f.workers and not f.threads,
        lambda f: f.of_workers(_more_workers(f)),
        "no workers: reading and computing take turns, which {0[better]} would do at the same time",
        lambda f: {
            "better": _more_workers(f),
            "CPUs": f.cores,
            "seconds of reading": f.waits,
            "seconds of computing": f.lost("step"),
        },
        "Workers make batches while the steps compute (num_workers=); a thread that reads ahead is like one of them.",
        "Waiting is divided by the workers, decoding by CPUs, and passes behind computing.",
    ),
    Rule(
        "F023",
        lambda f: _steps(f) and not f.workers and f.threads >= 2,
        lambda f: f.saved("decode", "disk", part=1 - 1 / min(f.threads, f.cores)),
        "{0[threads]} threads decode in one process: Python runs one of them at a time",
        lambda f: {"threads": f.threads, "CPUs": f.cores, **_seconds("decode")(f)},
        "Decode in processes (num_workers=), unless the decoder releases the interpreter's lock.",
        "Own code, and reads that wait for no store but their turn, are divided by threads, or CPUs.",
    ),
    Rule(
        "F024",
        _seeks,
        _cost_of_seeks,
        "seeks throw away what was read ahead: {0[ratio]:,.0f} bytes are fetched for each that is asked for",
        _amplified,
        "Read the ranges together by `fs.open_blob(path).pread_many`, or open with a `buffering=` of a read's size.",
        f"Transfer takes as long as it has bytes; those asked for would be fetched, by {IN_FLIGHT} requests at once.",
    ),
    Rule(
        "F025",
        _throttled,
        _failed_cost,
        "the store throttles: {0[retries]:,} requests were refused (slow down), and others held back",
        _of_retries,
        "Make fewer requests: pack small files, cache (cache=), spread keys over prefixes; more connections or workers "
        "make it worse.",
        "Without the waiting for the next turn, and the time in which only attempts after a failed one were under way.",
    ),
    Rule(
        "F026",
        lambda f: f.epochs,
        lambda f: f.outside("list"),
        "the start is listing: {0[seconds]:.1f} s of finding files outside of steps",
        lambda f: {"seconds": f.outside("list")},
        "Keep the list: a manifest (`fsabs manifest create`), or files packed into few containers, whose index is "
        "cached.",
        "Without listing and opening outside of steps.",
    ),
    Rule(
        "F027",
        lambda f: f.workers >= CROWDED * f.cores and f.lost("decode", "decompress") >= 0.5 * f.waits > 0,
        None,
        "too many workers: {0[workers]} that compute, on {0[CPUs]} CPUs",
        lambda f: {"workers": f.workers, "CPUs": f.cores},
        "As many workers as CPUs: more only take them from each other, and memory.",
    ),
    Rule(
        "F028",
        _clocks,
        None,
        "{0[clock]}",
        lambda f: {"clock": _clocks(f)},
        "Set the clocks by NTP; the machine's events were moved to begin with those of the first one.",
    ),
)
