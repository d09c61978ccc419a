"""The rules of findings, as rows: condition, cost by a stated model, what shows it, what to do, and what proves it.

The code of a rule stays, for scripts and documents. Where the advice is followed already, the condition doesn't hold.
What costs less than a second, or less than 5 % of the time, is a note; less than 1 % is nothing. Costs of several
findings may overlap: two causes of the same waiting may each have most of it. Rules are tried in the order of the
table, where F008, F030 and F035 are last: they are general, and look at what the others found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from .facts import IN_FLIGHT, Facts, Model, share
from .results import CAUSES, STORE, WAITS, Finding
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
"""F015: this part of the reads is under 64 KiB."""
ONE_AT_A_TIME = 1.5
"""F015: so many requests of a process are in flight while any is."""
AGAIN_SHARE = 0.3
"""F004, F017, F009: this part of a cache's misses, or of the opens, is of what was missed, or opened, before."""
AMPLIFICATION, MUCH = 2.0, 16 * 1024 * 1024
"""F005: bytes fetched for each byte asked for, and bytes too many."""
FRAGMENT = 16 * 1024
"""F005: the mean read of a file that is read here and there."""
RETRY_SHARE = 0.01
"""F006: this part of the requests was made again."""
STALL = 0.1
"""F008: this part of the steps' time is waiting for data."""
OPENS_PER_FILE = 10.0
"""F009: a file of this machine is opened so many times."""
ERROR_SHARE = 0.01
"""F010: this part of the user's calls fails."""
SLOW_SHARE = 0.1
"""F012: slow requests alone are under way for this part of the time in which any is."""
CODE_SHARE = 0.1
"""F018: the program's own code takes this part of the steps' time."""
ON_THE_WAY = 0.1
"""F020: this part of the time, batches are on their way."""
SLOW_REQUEST = 0.001
"""F015: the typical request takes so many seconds."""
CROWDED = 1.5
"""F027: so many workers for each CPU."""
LEAST_LAG = 0.05
"""F032: ranks wait for one of them for this part of the time."""

Evidence = Mapping[str, float | int | str]


class Rule(NamedTuple):
    """A row of the table; functions are of the facts of a trace."""

    code: str
    holds: Callable[[Model], object]
    cost: Callable[[Model], float] | None
    """Seconds; None for what is a note, whatever it costs."""
    title: str
    """A format string of the figures: `{0[requests]:,}`."""
    figures: Callable[[Model], Evidence]
    """What the finding rests on, by names for people; those that begin with `_` are for the texts alone."""
    advice: str
    """Of the figures, as the title."""
    model: str
    """How the cost is computed; a sentence. Empty for notes."""
    workload: str
    """The job among the tests' that has this cause and no other."""

    def find(self, m: Model) -> Finding | None:
        """Return the finding, if there is one that is worth reporting."""
        if not m.total or not self.holds(m):
            return None
        seconds = self.cost(m) if self.cost is not None else 0.0
        part = seconds / m.total
        if self.cost is not None and part < WORTH:
            return None
        severity = "note" if seconds < NOTE[0] or part < NOTE[1] else "high" if part >= HIGH else "medium"
        figures = self.figures(m)
        shown = {
            name: round(value, 4) if isinstance(value, float) else value
            for name, value in figures.items()
            if not name.startswith("_")
        }
        title, advice = self.title.format(figures), self.advice.format(figures)
        return Finding(self.code, severity, title, shown, advice, seconds, self.model)


def find(facts: Facts) -> list[Finding]:
    """Return all findings, the most expensive first."""
    model = Model(facts)
    for rule in RULES:
        if (finding := rule.find(model)) is not None:
            model.found.append(finding)
    return sorted(model.found, key=lambda finding: (-finding.seconds, finding.code))


# ---- what several rules look at


def _steps(m: Model) -> bool:
    return m.whole is not None and m.whole.steps >= FEW_STEPS


def _small(m: Model) -> float:
    """Return the part of the reads that are small, 0 where they are few."""
    counts = m.analysis.read_sizes.counts
    return share(sum(counts[: SMALL_BITS + 1]), sum(counts)) if sum(counts) >= ENOUGH else 0.0


def _serial(m: Model) -> bool:
    row = m.requests
    alone = row is not None and row.calls >= ENOUGH and 0 < m.in_flight < ONE_AT_A_TIME and not m.facts.ceiling
    other = _seeks(m) or _connects(m) or _too_small_a_cache(m)
    return alone and m.called("read_many") < 0.5 * m.called(*READS) and not other


def _connects(m: Model) -> bool:
    """Return whether connections are made for most requests, and most of the waiting for the store is for them."""
    made, all_waits = m.count("connect"), m.lost(*STORE) + m.outside(*STORE)
    return made >= max(ENOUGH, 0.5 * m.count("request")) and m.lost("connect") + m.outside("connect") >= 0.5 * all_waits


def _in_flight_cost(m: Model) -> float:
    """As many requests, `IN_FLIGHT` at once, but no faster than the most bytes a second that were seen."""
    row = m.requests
    assert row is not None
    peak = max(m.analysis.timeline.fetched, default=0.0)
    least = share(row.bytes, peak * row.busy) if peak and row.p50 < row.seconds / row.calls / 2 else 0.0
    return m.by_more_at_once(1 - max(m.in_flight / IN_FLIGHT, least))


def _of_requests(m: Model) -> Evidence:
    row = m.requests
    assert row is not None
    inside, outside = m.lost(*STORE), m.outside(*STORE)
    return {
        "requests": row.calls, "in flight": m.in_flight, "seconds of waiting": inside + outside,
        "p50 in milliseconds": row.p50 * 1e3, "small": _small(m),
        "_where": " outside of steps" if outside > inside else "",
    }  # fmt: skip


def _ratio(m: Model) -> float:
    """Return the bytes fetched for each byte asked for, 0 where that is not too much."""
    amount = m.analysis.amplification
    ratio, fetched = amount.ratio or 0.0, amount.fetched or 0
    return ratio if ratio >= AMPLIFICATION and fetched - amount.asked >= MUCH else 0.0


def _seeks(m: Model) -> bool:
    """Return whether most of what is asked for are small pieces of files, for which much more is fetched."""
    rows = [row for row in m.rows("fs") if row.operation == "read"]
    calls, data = sum(row.calls for row in rows), sum(row.bytes for row in rows)
    fragments = calls >= ENOUGH and data < FRAGMENT * calls and data > 0.5 * m.analysis.amplification.asked
    return fragments and _ratio(m) > 0


def _cost_of_amplification(m: Model) -> float:
    if not m.lost("transfer") + m.outside("transfer"):
        return m.saved(*STORE, part=1 - 1 / _ratio(m))
    side_by_side = m.saved("first_byte", part=1 - m.in_flight / IN_FLIGHT) if _seeks(m) else 0.0
    return m.saved("transfer", part=1 - 1 / _ratio(m)) + side_by_side


def _amplified(m: Model) -> Evidence:
    amount = m.analysis.amplification
    return {"bytes asked": amount.asked, "bytes fetched": amount.fetched or 0, "ratio": _ratio(m)}


def _failed_cost(m: Model) -> float:
    again = share(m.facts.for_data.again, m.facts.for_data.busy)
    return m.saved("throttle", "backoff") + m.saved("first_byte", "transfer", part=again)


def _of_retries(m: Model) -> Evidence:
    lost = m.lost("throttle", "backoff") + m.outside("throttle", "backoff")
    cause, advice = _RETRIES[_throttled(m)]
    return {
        "_cause": cause, "_advice": advice,
        "retries": m.analysis.retries, "requests": m.count("request"),
        "seconds of failed attempts": m.analysis.retry_seconds, "seconds held back": lost, **_failures(m, "request"),
    }  # fmt: skip


_RETRIES = {
    True: (
        "the store throttles",
        "Make fewer requests: pack small files, cache (cache=), spread keys over prefixes; more connections or workers "
        "make it worse.",
    ),
    False: (
        "retries",
        "Look at the errors of the slowest requests: timeouts and cut connections are the network's or a proxy's.",
    ),
}
"""The cause and the advice of F006, by whether the store refuses requests to be sent fewer."""


def _failures(m: Model, kind: str) -> Evidence:
    """Return the exceptions, most frequent first, and a name of each."""
    found = sorted((count, name) for (of, name), count in m.analysis.failures.items() if of == kind)
    return {"failures": ", ".join(f"{count:,} × {name}" for count, name in found[:-6:-1])} if found else {}


def _throttled(m: Model) -> bool:
    return bool(m.analysis.retries) and any(row.operation == "throttle" for row in m.rows("wait"))


def _slow_worker_cost(m: Model) -> float:
    assert m.slowest_worker is not None
    slowest, median = m.slowest_worker
    if not m.epochs:
        return max(0.0, min(m.total, slowest.seconds - slowest.calls * median))
    return m.saved(*WAITS, part=1 - median / slowest.each)


def _of_slow_worker(m: Model) -> Evidence:
    assert m.slowest_worker is not None
    slowest, median = m.slowest_worker
    return {
        "worker": slowest.label, "milliseconds a batch": slowest.each * 1e3, "median of the others": median * 1e3,
        "times": slowest.each / median,
    }  # fmt: skip


def _workers_wait(m: Model) -> bool:
    """Return whether workers make batches, and wait for most of their time."""
    waiting = m.lost(*STORE, "list", "disk")
    return _steps(m) and m.workers > 0 and m.waits >= STALL * m.in_steps and waiting >= 0.5 * m.waits and not _serial(m)


def _takes_turns(m: Model) -> bool:
    """Return whether the training thread makes its batches itself."""
    return _steps(m) and not m.workers and not m.threads


def _own_code(m: Model) -> bool:
    shared = m.threads >= 2 and not m.workers  # F023
    much = m.lost("decode") >= (CODE_SHARE * m.in_steps if m.workers else 0.5 * m.waits)  # else F008
    return _steps(m) and much and not shared and not m.slowest_worker and m.first_batch < 0.5 * m.lost("decode")


def _cost_of_code(m: Model) -> float:
    """More workers up to the CPUs that are free; where there are as many, all of it."""
    return m.of_workers(m.free_cpus) if max(1, m.workers) < m.free_cpus else m.saved("decode")


def _of_code(m: Model) -> Evidence:
    return {
        **_seconds("decode")(m), "storage": share(m.lost(*STORE), m.total), "computing": m.computing,
        "workers": m.workers, "CPUs": m.cpus, "ready for a CPU that others had": m.crowded,
    }  # fmt: skip


def _again(m: Model) -> float:
    """Return the part of the opens that are of a file that was opened before."""
    files = m.analysis.files_seen
    known = not m.cached and m.opens >= ENOUGH and 0 < files < FILES_KEPT
    part = 1 - files / m.opens if known else 0.0
    return part if m.requests is not None or m.opens >= OPENS_PER_FILE * files else 0.0


def _of_later_epochs(m: Model, otherwise: float, *causes: str) -> float:
    """Return what the epochs after the first lose to causes; of one epoch, a part of its loss."""
    if len(m.epochs) < 2:
        return m.saved(*causes, part=otherwise)
    later = sum(epoch.causes[cause] for epoch in m.epochs[1:] for cause in causes)
    return m.saved(*causes, part=share(later, m.lost(*causes)))


def _too_small_a_cache(m: Model) -> bool:
    misses = m.analysis.cache.misses
    return misses >= ENOUGH and m.facts.missed_again >= AGAIN_SHARE * misses


def _cold(m: Model) -> float:
    """Return the seconds for which the first epoch waits longer for the store than the best one."""
    waited = [sum(epoch.causes[cause] for cause in STORE) for epoch in m.epochs]
    return waited[0] - min(waited[1:]) if len(waited) > 1 else 0.0


def _slow_part(m: Model) -> float:
    return share(m.facts.for_data.slow, m.facts.for_data.busy)


def _of_slow(m: Model) -> Evidence:
    slow = m.facts.for_data
    return {
        "seconds of the slowest": slow.slowest[0], "bytes of the slowest": slow.slowest[1], "where": slow.slowest[2],
        "seconds of the typical": slow.typical, "times": share(slow.slowest[0], slow.typical),
    }  # fmt: skip


def _errors(m: Model) -> int:
    return sum(row.errors for row in m.rows("fs"))


def _seconds(*causes: str) -> Callable[[Model], Evidence]:
    return lambda m: {"seconds": m.lost(*causes), "share": share(m.lost(*causes), m.total)}


def _not_hidden(m: Model, cost: float) -> bool:
    """Return whether more workers are the advice: not where a cause of the same waiting costs a third as much."""
    other = {"F019", "F020", "F021", "F026", "F032", "F034"}  # time that more workers don't change
    return not any(one.seconds >= cost / 3 for one in m.found if one.code not in other)


# ---- the largest part

PARTS: Mapping[str, str] = {
    "connect": "Reuse connections: make the FS once, and not for each file.",
    "first_byte": "Ask for more at once: read_many, more workers, or data that is nearer.",
    "transfer": "Fetch fewer bytes, or read from nearer: a cache, smaller files.",
    "throttle": "Make fewer requests.",
    "backoff": "Look at the errors of the slowest requests.",
    "list": "Keep the list of files, or pack them.",
    "disk": "A faster disk, a smaller format, or reading ahead by workers.",
    "decompress": "Store what is compressed already without compression.",
    "decode": "Time the parts of the program's own code by `fsabs.trace.span`.",
    "read_ahead": "Make batches smaller: they are copied between processes.",
    "startup": "Workers import the program and get the data set: import less at its top, keep the data set small, and "
    "take fork or forkserver where spawn is used.",
    "checkpoint": "Write beside the training: `CheckpointManager.save_async`.",
    "step": "The data is not what this job waits for. Inside of steps, time the forward and backward pass, logging and "
    "checkpoints by `fsabs.trace.span`; a profiler tells what they do.",
    "outside": "It is before the first step, between epochs, or after the last step: imports, making the data set and "
    "the model, validation, checkpoints. Time them by `fsabs.trace.span`.",
}
"""Where to look if a part of the time is the largest one, and no rule says why."""


def _largest(m: Model) -> tuple[str, float]:
    assert m.whole is not None
    return max(m.whole.causes.items(), key=lambda one: one[1])


def _unexplained(m: Model) -> bool:
    """Return whether no other finding costs half of the largest part."""
    return not any(one.seconds >= 0.5 * _largest(m)[1] for one in m.found)


def _of_largest(m: Model) -> Evidence:
    cause, seconds = _largest(m)
    spans = sorted(m.rows("span"), key=lambda row: -row.seconds)[:3]
    outside = [one for one in m.analysis.slowest if not _in_a_step(m, one.begin)][:3] if cause == "outside" else []
    longest = [f"{row.operation} {row.seconds:.3g} s" for row in spans]
    calls = [f"{one.operation} {one.where} {one.duration / 1e9:.3g} s" for one in outside]
    return {
        "part": CAUSES[cause], "seconds": seconds, "share": share(seconds, m.total), "_advice": PARTS[cause],
        **({"longest spans": ", ".join(longest)} if longest else {}),
        **({"longest calls": ", ".join(calls)} if calls else {}),
    }  # fmt: skip


def _in_a_step(m: Model, moment: int) -> bool:
    return any(step.begin <= moment < step.begin + 1e9 * step.seconds for step in m.analysis.steps)


# ---- the table

RULES: tuple[Rule, ...] = (
    Rule(
        "F004",
        holds=_too_small_a_cache,
        cost=lambda m: _of_later_epochs(m, share(m.facts.missed_again, m.analysis.cache.misses), *m.reading),
        title="the cache is too small: {0[missed again]:,} of {0[misses]:,} misses are of what it had missed before",
        figures=lambda m: {
            "hits": m.analysis.cache.hits,
            "misses": m.analysis.cache.misses,
            "evictions": m.analysis.cache.evictions,
            "missed again": m.facts.missed_again,
        },
        advice="Give it room for all that an epoch reads (max_bytes=), or share one folder among the processes of a "
        "machine; where it can't have it, read without.",
        model="Epochs after the first would not wait for what it reads; of one epoch, each miss costs the same.",
        workload="tiny cache",
    ),
    Rule(
        "F005",
        holds=_ratio,
        cost=_cost_of_amplification,
        title="read amplification: {0[ratio]:,.1f} bytes are fetched for each that is asked for",
        figures=_amplified,
        advice="Read whole members by read_bytes or read_many, or ranges together by `fs.open_blob(path).pread_many`, "
        "which fetch what they need and no more; read in the order in which things are stored; use smaller blocks in "
        "the cache, or a `buffering=` of a read's size.",
        model=f"Transfer takes as long as it has bytes; only those asked for are fetched, seeks {IN_FLIGHT} at once.",
        workload="wrong order",
    ),
    Rule(
        "F006",
        holds=lambda m: m.analysis.retries >= max(1, RETRY_SHARE * m.count("request")),
        cost=_failed_cost,
        title="{0[_cause]}: {0[retries]:,} attempts of {0[requests]:,} were made again",
        figures=_of_retries,
        advice="{0[_advice]}",
        model="Without the time in which only attempts after a failed one were under way, and the waiting before them.",
        workload="retries",
    ),
    Rule(
        "F036",
        holds=_connects,
        cost=lambda m: m.saved("connect"),
        title="connections are not kept: {0[connections]:,} were made for {0[requests]:,} requests",
        figures=lambda m: {"connections": m.count("connect"), "requests": m.count("request"), **_seconds("connect")(m)},
        advice="Make the FS once for each process, and not for each file; a proxy or store that closes connections "
        "after a request makes each one as slow as the first.",
        model="Without the waiting for connections.",
        workload="connections that are not kept",
    ),
    Rule(
        "F007",
        holds=lambda m: m.slowest_worker and not _too_small_a_cache(m),
        cost=_slow_worker_cost,
        title="one slow worker: {0[worker]} takes {0[times]:.1f} times as long as the others",
        figures=_of_slow_worker,
        advice="Batches come in order, so that all workers wait for it. If it stays the same one, look at its machine "
        "and its part of the data; if it changes, look for files that are much larger than the others.",
        model="All workers take as long as the median of the others.",
        workload="one slow worker",
    ),
    Rule(
        "F009",
        holds=lambda m: _again(m) >= AGAIN_SHARE,
        cost=lambda m: _of_later_epochs(m, _again(m), *STORE, *(() if m.requests else ("list", "disk"))),
        title="files are opened again: {0[opens of a file]:.0f} times each",
        figures=lambda m: {"files": m.analysis.files_seen, "opens of a file": m.opens / m.analysis.files_seen},
        advice="Read through a cache (cache=) with room for them, or keep what is read often open: an open file may "
        "be shared by threads and processes.",
        model="Epochs after the first would not wait for the store; of one epoch, each file is opened and read once.",
        workload="opened again",
    ),
    Rule(
        "F010",
        holds=lambda m: m.count("fs") >= ENOUGH and _errors(m) >= ERROR_SHARE * m.count("fs"),
        cost=None,
        title="{0[errors]:,} of {0[calls]:,} calls fail",
        figures=lambda m: {"calls": m.count("fs"), "errors": _errors(m), **_failures(m, "fs")},
        advice="The table of files says which ones; each event has the name of its exception. A FileNotFoundError may "
        "be an answer: where files are looked for by opening them, nothing is wrong.",
        model="",
        workload="failing calls",
    ),
    Rule(
        "F011",
        holds=lambda m: m.count("decompress") >= ENOUGH,
        cost=lambda m: m.saved("decompress"),
        title="decompression takes {0[seconds]:.1f} s, {0[share]:.0%} of the time",
        figures=_seconds("decompress"),
        advice="Store what is compressed already (JPEG, PNG, Opus) without compression: `fsabs.pack` does; isal makes "
        "inflate two to three times as fast (pip install 'fsabs[speed]').",
        model="What is stored without compression takes no time to decompress.",
        workload="decompression",
    ),
    Rule(
        "F012",
        holds=lambda m: m.facts.for_data.count >= ENOUGH and _slow_part(m) >= SLOW_SHARE and not _throttled(m),
        cost=lambda m: m.saved(*m.reading, part=_slow_part(m)),
        title="a slow tail: the slowest takes {0[seconds of the slowest]:.3g} s, {0[times]:.0f} times as long as the "
        "typical one",
        figures=_of_slow,
        advice="A batch waits for its slowest request: prefetch further ahead, and look at the slowest requests for "
        "what they have in common; one file that is much larger than the others is better split, or read in parts.",
        model="Without the time in which only those were under way that had taken twice as long as the typical one.",
        workload="a slow tail",
    ),
    Rule(
        "F014",
        holds=lambda m: m.calls(*METADATA) >= ENOUGH and m.called(*METADATA) >= 0.5 * m.called(*METADATA, *READS),
        cost=lambda m: m.saved("list") - m.outside("list"),
        title="finding files takes longer than reading them: {0[seconds of finding]:.1f} s",
        figures=lambda m: {"seconds of finding": m.called(*METADATA), "seconds of reading": m.called(*READS)},
        advice="Pack small files into a container, whose index is read once; read whole files by read_bytes or "
        "read_many.",
        model="Without listing and opening inside of steps.",
        workload="metadata",
    ),
    Rule(
        "F015",
        holds=lambda m: _serial(m) and (_small(m) >= SMALL_SHARE or (m.requests and m.requests.p50 >= SLOW_REQUEST)),
        cost=_in_flight_cost,
        title="one request at a time{0[_where]}: {0[in flight]:.1f} in flight in a process, {0[p50 in "
        "milliseconds]:.1f} ms each",
        figures=_of_requests,
        advice="Each read waits for the one before: read a batch by one `read_many`, which has many requests in "
        "flight, or use more workers. Small files that are packed into a zip or tar (`fsabs.pack`) and lie side by "
        "side come in one request.",
        model=f"The same requests with {IN_FLIGHT} of them in flight.",
        workload="slow store, one request at a time",
    ),
    Rule(
        "F017",
        holds=lambda m: m.cached and m.facts.missed_again < AGAIN_SHARE * m.analysis.cache.misses,
        cost=_cold,
        title="the first epoch fills the cache: it waits {0[seconds]:.1f} s longer for the store than the best one",
        figures=lambda m: {"seconds": _cold(m), "misses": m.analysis.cache.misses},
        advice="Fill the cache before training, with many requests in flight: `fs.warm()`, or `fsabs cache warm`; or "
        "read ahead by `prefetch`. Keep its folder for the next run.",
        model="The first epoch waits for the store as long as the best one.",
        workload="cold cache",
    ),
    Rule(
        "F018",
        holds=lambda m: _own_code(m) and m.computing >= 0.5,
        cost=_cost_of_code,
        title="the program's own code (decoding, collating) takes {0[share]:.0%} of the time, the store "
        "{0[storage]:.0%}",
        figures=lambda m: {**_of_code(m), **({"better": m.free_cpus} if max(1, m.workers) < m.free_cpus else {})},
        advice="As many workers as there are CPUs for a rank, where they are free; from there on a cheaper decoder, "
        "smaller pictures, or samples that are decoded once and stored so. Time it with `fsabs.trace.span`.",
        model="As many workers as CPUs; where there are as many, or others want the CPUs, without that code.",
        workload="slow decoding on all CPUs",
    ),
    Rule(
        "F019",
        holds=_steps,
        cost=lambda m: sum(epoch.causes["startup"] for epoch in m.epochs[1:]),
        title="starting workers takes {0[seconds]:.3g} s, in {0[epochs]} epochs",
        figures=lambda m: {"seconds": sum(epoch.causes["startup"] for epoch in m.epochs), "epochs": len(m.epochs)},
        advice="Keep the workers from one epoch to the next (persistent_workers=True); fork or forkserver starts them "
        "faster than spawn, which imports everything again and unpickles the data set.",
        model="Workers are started for the first epoch only.",
        workload="start-up",
    ),
    Rule(
        "F020",
        holds=lambda m: _steps(m) and m.workers and share(m.lost("read_ahead"), m.total) >= ON_THE_WAY,
        cost=lambda m: m.lost("read_ahead"),
        title="batches on their way between processes take {0[share]:.0%} of the time",
        figures=_seconds("read_ahead"),
        advice="While no worker works, a batch is pickled, copied or unpickled: return few large tensors in place of "
        "many small objects, uint8 in place of float32, and pin the memory in a thread (pin_memory=True).",
        model="Without the time in which batches were on their way.",
        workload="transfer",
    ),
    Rule(
        "F021",
        holds=_steps,
        cost=lambda m: m.lost("checkpoint"),
        title="the steps stand still for {0[seconds]:.1f} s of writing",
        figures=_seconds("checkpoint"),
        advice="Write checkpoints beside the training: `CheckpointManager.save_async` copies the state, and a thread "
        "writes.",
        model="Without the time of writing inside of steps.",
        workload="checkpoint stalls",
    ),
    Rule(
        "F023",
        holds=lambda m: _steps(m) and not m.workers and m.threads >= 2,
        cost=lambda m: m.saved("decode", "disk", part=1 - 1 / min(m.threads, m.cpus)),
        title="{0[threads]} threads decode in one process: Python runs one of them at a time",
        figures=lambda m: {"threads": m.threads, "CPUs": m.cpus, **_seconds("decode")(m)},
        advice="Decode in processes (num_workers=), unless the decoder releases the interpreter's lock.",
        model="Own code, and reads that wait for no store but their turn, are divided by threads, or CPUs.",
        workload="threads share the interpreter",
    ),
    Rule(
        "F026",
        holds=lambda m: m.epochs,
        cost=lambda m: m.outside("list"),
        title="the start is listing: {0[seconds]:.1f} s of finding files outside of steps",
        figures=lambda m: {"seconds": m.outside("list")},
        advice="Keep the list: a manifest (`fsabs manifest create`), or files packed into few containers, whose index "
        "is cached.",
        model="Without listing and opening outside of steps.",
        workload="a listing at the start",
    ),
    Rule(
        "F027",
        holds=lambda m: (
            m.workers >= CROWDED * m.cpus and m.lost("decode", "decompress") * m.computing >= 0.5 * m.waits > 0
        ),
        cost=None,
        title="too many workers: {0[workers]} that compute, on {0[CPUs]} CPUs, for each rank",
        figures=lambda m: {"workers": m.workers, "CPUs": m.cpus},
        advice="As many workers as CPUs: more only take them from each other, and memory.",
        model="",
        workload="more workers than CPUs",
    ),
    Rule(
        "F037",
        holds=lambda m: m.count("grid"),
        cost=None,
        title="blocks are read by several processes: the order has {0[lanes]:,} lanes, for other numbers of ranks and "
        "workers",
        figures=lambda m: {"lanes": max(row.bytes // row.calls for row in m.rows("grid")), "workers": m.workers},
        advice="Each block is read by all that take a part of it, up to as often as there are readers of a lane. Take "
        "numbers of ranks and workers that divide the lanes, or start the next epoch anew with `lanes=` of these.",
        model="",
        workload="other numbers than the grid's",
    ),
    Rule(
        "F029",
        holds=lambda m: _own_code(m) and m.computing < 0.5,
        cost=lambda m: m.saved("decode", part=1 - m.computing),
        title="the program's own code waits: it takes {0[share]:.0%} of the time, with a CPU for {0[computing]:.0%} "
        "of that",
        figures=_of_code,
        advice="It waits for a lock, a sleep, a child process, or a download of its own: read by fsabs, whose "
        "requests go side by side; time its parts by `fsabs.trace.span`. More workers hide what is no shared lock.",
        model="Without the time in which own code has no CPU.",
        workload="code that waits",
    ),
    Rule(
        "F031",
        holds=lambda m: m.facts.ceiling,
        cost=lambda m: m.saved(*m.reading, part=m.facts.ceiling.part if m.facts.ceiling else 0.0),
        title="{0[what]} is full: {0[text]} at most, however much is asked for at once",
        figures=lambda m: {
            "what": m.facts.ceiling.name if m.facts.ceiling else "",
            "text": m.facts.ceiling.text if m.facts.ceiling else "",
            "part of the time": m.facts.ceiling.part if m.facts.ceiling else 0.0,
            "workers": m.workers,
        },
        advice="More workers, or more requests at once, don't help. Fetch less: a cache for what is read again, "
        "smaller or packed files; or read from what is nearer and wider.",
        model="Without the waiting in which it was full.",
        workload="a full link",
    ),
    Rule(
        "F032",
        holds=lambda m: m.facts.lag is not None and m.facts.lag.every >= LEAST_LAG * m.total,
        cost=lambda m: m.facts.lag.every if m.facts.lag is not None else 0.0,
        title="ranks wait for {0[rank]}: {0[seconds]:.1f} s, {0[part of the waiting]:.0%} of what they wait for one "
        "another",
        figures=lambda m: {
            "rank": m.facts.lag.label if m.facts.lag else "",
            "seconds": m.facts.lag.seconds if m.facts.lag else 0.0,
            "part of the waiting": share(m.facts.lag.seconds, m.facts.lag.every) if m.facts.lag else 0.0,
        },
        advice="A step ends with its last rank. Compare its line in Processes with the others': its machine, its part "
        "of the data, its link; if it is each time another rank, the samples' sizes differ.",
        model="The critical rank of each step is as fast as the typical one of the others.",
        workload="a straggler",
    ),
    Rule(
        "F033",
        holds=_steps,
        cost=lambda m: m.first_batch,
        title="the first batch of a worker takes {0[seconds]:.1f} s longer than the others",
        figures=lambda m: {"seconds": m.first_batch, "workers": m.workers},
        advice="It builds what is kept then: an index, a lookup, a model. Build it before the workers start and let "
        "them inherit it, or keep it in a file.",
        model="The first batch takes as long as the others.",
        workload="a lazy index",
    ),
    Rule(
        "F034",
        holds=lambda m: _steps(m) and 0 < m.long_steps[0] < 0.34 * len(m.analysis.steps),
        cost=lambda m: m.long_steps[1],
        title="{0[long]:,} of {0[steps]:,} steps compute much longer than the typical one",
        figures=lambda m: {
            "long": m.long_steps[0],
            "steps": len(m.analysis.steps),
            "seconds": m.long_steps[1],
        },
        advice="What is not done in each step takes the time: checkpoints by `open`, logging, validation, compiling "
        "at the first one. Time it by `fsabs.trace.span`, and do it beside the training.",
        model="All steps compute as long as the typical one.",
        workload="checkpoints by open",
    ),
    Rule(
        "F008",
        holds=lambda m: (
            (_workers_wait(m) if m.workers else _takes_turns(m)) and _not_hidden(m, m.of_workers(m.more_workers))
        ),
        cost=lambda m: m.of_workers(m.more_workers),
        title="too few workers: {0[better]} in place of {0[workers]} would wait for less",
        figures=lambda m: {
            "workers": m.workers,
            "better": m.more_workers,
            "CPUs": m.cpus,
            **{f"seconds of {CAUSES[cause]}": m.lost(cause) for cause in WAITS if m.lost(cause)},
        },
        advice="More workers (num_workers=) hide the waiting for a store, and make batches while the steps compute, "
        "as far as the other findings don't remove it; a thread that reads ahead is like one of them.",
        model="Waiting is divided by more workers, decoding by CPUs; nothing by what is full. It passes behind the "
        "steps.",
        workload="slow store, many requests",
    ),
    Rule(
        "F030",
        holds=lambda m: _unexplained(m) and _largest(m)[0] != "step",
        cost=lambda m: _largest(m)[1],
        title="the largest part of the time is {0[part]}: {0[share]:.0%}",
        figures=_of_largest,
        advice="{0[_advice]}",
        model="Without it.",
        workload="a slow start",
    ),
    Rule(
        "F035",
        holds=lambda m: _unexplained(m) and _largest(m)[0] == "step",
        cost=None,
        title="the largest part of the time is {0[part]}: {0[share]:.0%}",
        figures=_of_largest,
        advice="{0[_advice]}",
        model="",
        workload="nothing",
    ),
)
