"""Predicate: whether a row group can hold rows that filters want, by its statistics alone."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

Condition = tuple[str, str, Any]


class Predicate:
    """Filters in pyarrow's form: conditions `(column, operator, value)` that all hold, or a list of lists of them.

    Of several lists, one has to hold. Operators: `=`, `==`, `!=`, `<`, `<=`, `>`, `>=`, `in`, `not in`. `ValueError`
    for anything else.
    """

    def __init__(self, filters: Sequence[Any]) -> None:
        nested = bool(filters) and all(isinstance(one, list) for one in filters)
        groups = filters if nested else [filters]
        self._any: list[list[Condition]] = [[_checked(one) for one in group] for group in groups]

    def admits(self, row_group: Any) -> bool:
        """Return False if the statistics (pyarrow's `RowGroupMetaData`) rule out that any row fits."""
        columns = {}
        for number in range(row_group.num_columns):
            column = row_group.column(number)
            columns[column.path_in_schema] = column.statistics
        for group in self._any:
            for name, _, _ in group:
                if name not in columns:
                    raise ValueError(f"filters name the column {name!r}, and there are {sorted(columns)}")
        return any(all(_may_hold(columns[name], how, value) for name, how, value in group) for group in self._any)


def _checked(condition: Any) -> Condition:
    if not (isinstance(condition, tuple) and len(condition) == 3 and condition[1] in _OPERATORS):
        raise ValueError(f"no condition (column, operator, value): {condition!r}; operators: {', '.join(_OPERATORS)}")
    return condition


def _may_hold(statistics: Any, how: str, value: Any) -> bool:
    if statistics is None or not statistics.has_min_max:
        return True
    try:
        return _OPERATORS[how](statistics.min, statistics.max, value)
    except TypeError:
        raise ValueError(f"{value!r} can't be compared with the values {statistics.min!r}") from None


def _not_equal(least: Any, largest: Any, value: Any) -> bool:
    return not least == largest == value


_OPERATORS: dict[str, Callable[[Any, Any, Any], bool]] = {
    "=": lambda least, largest, value: least <= value <= largest,
    "==": lambda least, largest, value: least <= value <= largest,
    "!=": _not_equal,
    "<": lambda least, largest, value: operator.lt(least, value),
    "<=": lambda least, largest, value: operator.le(least, value),
    ">": lambda least, largest, value: operator.gt(largest, value),
    ">=": lambda least, largest, value: operator.ge(largest, value),
    "in": lambda least, largest, values: any(least <= value <= largest for value in values),
    "not in": lambda least, largest, values: not (least == largest and least in values),
}
