"""The rules of findings about training steps: what they wait for that is not the way in which files are read."""

from __future__ import annotations

import statistics
from typing import NamedTuple

from . import reading_rules
from .facts import Facts, Rule, share
from .results import (
    PARTS,
    Breakdown,
    Finding,
)

SLOW_FACTOR = 2.0
"""F007: a process takes so many times as long for a batch as the median of all."""
FEW_STEPS = 5
"""Of fewer steps nothing is said: the first one starts the workers."""
STALL_PERCENTAGE = 10.0
"""F008: this part of the steps' time is waiting for data."""
CODE_SHARE = 0.1
"""F018: the program's own code takes this part of the steps' time."""
TURNS_SHARE = 0.1
"""F022: this part of the steps' time could pass while the program computes."""
THREADS = 2
"""F023: so many threads share one interpreter."""


def _whole(facts: Facts) -> Breakdown | None:
    """Return the breakdown of all steps, where there are enough of them."""
    rows = facts.analysis.breakdown
    return rows[0] if rows and rows[0].steps >= FEW_STEPS else None


def slow_process(facts: Facts) -> Finding | None:
    """F007."""
    busy = facts.calls
    if len(busy) < 3:
        return None
    slowest = max(busy, key=lambda one: one.each)
    # Not those of other epochs, where workers are started for each: what they read may have been cached by then.
    beside = [one.each for one in busy if one.ran_beside(slowest)]
    median = statistics.median(beside)
    if len(beside) < 3 or not median or slowest.each < SLOW_FACTOR * median:
        return None
    lost = _waiting(facts) if facts.analysis.breakdown else slowest.seconds
    return facts.finding(
        "F007",
        lost * (1 - median / slowest.each),
        f"one slow worker: {slowest.label} takes {slowest.each / median:.1f} times as long as the median",
        {
            "worker": slowest.label,
            "milliseconds a call": round(slowest.each * 1e3, 4),
            "median of all": round(median * 1e3, 4),
            "threshold": SLOW_FACTOR,
        },
        "Batches come in order, so that all workers wait for it. If it stays the same one, look at its machine and its "
        "part of the data; if it changes, look for files that are much larger than the others.",
    )


def _waiting(facts: Facts) -> float:
    parts = facts.analysis.breakdown[0].parts
    return sum(parts[part] for part in ("storage", "cache", "decompression", "code", "transfer"))


def data_stall(facts: Facts) -> Finding | None:
    """F008: the whole, with its parts; its cost is that of reading which no finding about reading explains."""
    stall = facts.analysis.stall
    whole = _whole(facts)
    if stall is None or whole is None or stall.percentage < STALL_PERCENTAGE:
        return None
    parts = whole.parts
    waits = {name: seconds for name, seconds in parts.items() if name != "compute"}
    most = max(waits, key=lambda name: waits[name])
    title = f"data stall: {stall.percentage:.0f} % of the steps' time is no computing, most of it {PARTS[most]}"
    if waits["storage"] < waits[most]:
        title += ": storage is not the bottleneck"
    evidence: dict[str, float | int | str] = {"steps": stall.steps, "percentage": round(stall.percentage, 2)}
    evidence |= {f"seconds of {PARTS[name]}": round(seconds, 3) for name, seconds in parts.items() if seconds}
    severity = "high" if stall.percentage >= 3 * STALL_PERCENTAGE else "medium"
    advice = {
        "storage": "More workers, or reading further ahead, hide the waiting for a store, as far as the other findings "
        "don't remove it; a cache (cache=) keeps what is read again.",
        "cache": "A cache on a faster disk, or more of it in memory (memory_bytes=), gives hits faster.",
    }.get(most, "The other findings say what to do about it.")
    explained = max((found.seconds for rule in reading_rules.RULES if (found := rule(facts))), default=0.0)
    unexplained = max(0.0, waits["storage"] + waits["cache"] - explained)
    return Finding("F008", severity, title, {**evidence, "threshold": STALL_PERCENTAGE}, advice, unexplained)


def own_code(facts: Facts) -> Finding | None:
    """F018."""
    seconds, total, whole = facts.lost("code"), facts.total(), _whole(facts)
    if whole is None or share(seconds, total) < CODE_SHARE:
        return None
    largest = all(seconds >= facts.lost(part) for part in PARTS if part != "compute")
    others = [found.seconds for rule in (threads_share_python, slow_process) if (found := rule(facts)) is not None]
    return facts.finding(
        "F018",
        seconds - sum(others),  # those are other causes of the same waiting
        f"{'storage is not the bottleneck: ' if largest else ''}the program's own code (decoding, augmentation, "
        f"collating) takes {share(seconds, total):.0%} of the steps' time",
        {
            "seconds of own code": round(seconds, 3),
            "seconds of waiting for a store": round(facts.lost("storage"), 3),
            "worker processes": whole.workers,
            "threshold": CODE_SHARE,
        },
        "More workers where there are idle CPUs; a cheaper decoder, smaller pictures, or samples that are decoded once "
        "and stored so. Time it with `fsabs.trace.span`.",
    )


class PartRule(NamedTuple):
    """The rule of a part of the steps' time that has one cause: it is a finding where it takes `least` of the time."""

    code: str
    part: str
    """One of `PARTS`."""
    least: float
    title: str
    """With the fields `seconds`, `each` (of them, an epoch) and `share`."""
    evidence: str
    advice: str

    def find(self, facts: Facts) -> Finding | None:
        """Return the finding, if there is one."""
        seconds, part = facts.lost(self.part), share(facts.lost(self.part), facts.total())
        if _whole(facts) is None or part < self.least:
            return None
        epochs = max(1, len(facts.epochs))
        title = self.title.format(seconds=seconds, each=seconds / epochs, share=part)
        evidence = {self.evidence: round(seconds, 3), "epochs": epochs, "threshold": self.least}
        return facts.finding(self.code, seconds, title, evidence, self.advice)


PARTS_WITH_ONE_CAUSE = (
    PartRule(
        "F019",
        "startup",
        0.05,
        "starting workers takes {each:.3g} s an epoch, {share:.0%} of the time",
        "seconds of starting",
        "Keep the workers from one epoch to the next (persistent_workers=True); fork or forkserver starts them faster "
        "than spawn, which imports everything again and unpickles the data set.",
    ),
    PartRule(
        "F020",
        "transfer",
        0.1,
        "batches on their way between processes take {share:.0%} of the steps' time",
        "seconds of transfer",
        "While no worker works, a batch is pickled, copied or unpickled: return few large tensors in place of many "
        "small objects, uint8 in place of float32, and pin the memory in a thread (pin_memory=True).",
    ),
    PartRule(
        "F021",
        "writing",
        0.05,
        "the steps stand still for {seconds:.1f} s of writing, {share:.0%} of their time",
        "seconds of writing",
        "Write checkpoints beside the training: `CheckpointManager.save_async` copies the state, and a thread writes.",
    ),
)


def no_workers(facts: Facts) -> Finding | None:
    """F022."""
    whole = _whole(facts)
    if whole is None or whole.workers or whole.threads:
        return None
    saved = min(_waiting(facts), facts.lost("compute"))
    if share(saved, facts.total()) < TURNS_SHARE:
        return None
    return facts.finding(
        "F022",
        saved,
        f"reading and computing take turns: {saved:.1f} s of reading could pass while the program computes",
        {
            "seconds of reading": round(_waiting(facts), 3),
            "seconds of computing": round(facts.lost("compute"), 3),
            "threshold": TURNS_SHARE,
        },
        "Use workers (num_workers=), or read ahead in a thread.",
    )


def threads_share_python(facts: Facts) -> Finding | None:
    """F023."""
    whole, seconds = _whole(facts), facts.lost("code")
    if whole is None or whole.workers or whole.threads < THREADS or share(seconds, whole.seconds) < CODE_SHARE:
        return None
    return facts.finding(
        "F023",
        seconds * (1 - 1 / whole.threads),
        f"{whole.threads} threads decode in one process: Python runs one of them at a time",
        {"threads": whole.threads, "seconds of own code": round(seconds, 3), "threshold": THREADS},
        "Decode in processes (num_workers=), unless the decoder releases the interpreter's lock.",
    )


RULES: tuple[Rule, ...] = (
    slow_process, data_stall, own_code, *(rule.find for rule in PARTS_WITH_ONE_CAUSE), no_workers, threads_share_python,
)  # fmt: skip
