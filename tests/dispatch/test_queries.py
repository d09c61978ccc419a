"""The plans that PostgreSQL chooses for the statements of a dispatcher."""

from __future__ import annotations

import sqlalchemy as sa

from fsabs.dispatch import TaskDispatcher, queries
from tests.servers.postgresql import PostgreSQL


def test_a_report_finds_its_task_by_key_before_postgresql_has_statistics(postgresql: PostgreSQL) -> None:
    # The index of leased tasks has an entry for each dispatch since the last vacuum: a plan that scans it is slow.
    url = postgresql.database_url()
    TaskDispatcher.create(url, training=[("a", 0, 100)], records_per_task=1).close()
    engine = sa.create_engine(url)
    values = {"task_id": 1, "job_id": 1, "with_lease": 1, "records": 1, "seconds": 1.0, "error": "", "max_failures": 1}
    with engine.begin() as connection:
        for statement in (queries.settle, queries.settle_part, queries.settle_failure, queries.extend):
            compiled = statement.compile(engine, compile_kwargs={"render_postcompile": True})
            plan = connection.exec_driver_sql(f"EXPLAIN {compiled}", {**compiled.params, **values}).scalars().all()
            assert any("fsabs_task_pkey" in line for line in plan), plan
            assert not any("fsabs_doing" in line for line in plan), plan
    engine.dispose()
