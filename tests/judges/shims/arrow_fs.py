"""pyarrow's tests of filesystems, on `fs.arrow()`: those that ask for any filesystem."""

from __future__ import annotations

import inspect

import pytest
from pyarrow.tests import test_fs

JUDGED = {"fs", "pathfn", "allow_move_dir", "allow_append_to_file", "filesystem_config"}
for _name, _found in vars(test_fs).items():
    is_test = _name.startswith("test_") and inspect.isfunction(_found)
    if not is_test or JUDGED & {*inspect.signature(_found).parameters}:
        globals().setdefault(_name, _found)


@pytest.fixture
def filesystem_config(judged_fs):
    can = judged_fs.capabilities
    return {
        "fs": judged_fs.arrow(),
        "pathfn": lambda path: path,
        "allow_move_dir": can.rename and can.mkdir,
        "allow_append_to_file": can.append,
    }
