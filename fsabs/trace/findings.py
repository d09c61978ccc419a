"""Findings: what costs time in a trace, each with a code that stays, the figures that it rests on, and what to do.

A rule looks at an analysis and returns a finding or nothing; what it takes to be worth reporting is a constant beside
it. Rules about reading are in `reading_rules`, those about the steps in `step_rules`. What a finding costs is estimated
of the time that the steps lose to its part of the breakdown; so findings can be ordered, and none costs more than there
is.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import reading_rules, step_rules
from .facts import Calls, Facts, Rule
from .results import (
    Analysis,
    Finding,
)

RULES: tuple[Rule, ...] = (*reading_rules.RULES, *step_rules.RULES)


def find(analysis: Analysis, calls: Sequence[Calls], stats_first: int) -> list[Finding]:
    """Return all findings, the most expensive first."""
    facts = Facts(analysis, calls, stats_first)
    found = [finding for rule in RULES if (finding := rule(facts)) is not None]
    return sorted(found, key=lambda finding: (-finding.seconds, finding.code))
