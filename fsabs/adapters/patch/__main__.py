"""`python -m fsabs.adapters.patch PROGRAM [ARGUMENT...]`: run a program with what `$FSABS_PATCH` names patched.

The program runs as it would by `python PROGRAM`; processes that it starts are patched, too.
"""

from __future__ import annotations

import os
import sys

from . import startup

if __name__ == "__main__":
    if len(sys.argv) < 2 or not os.environ.get("FSABS_PATCH"):
        sys.exit("usage: FSABS_PATCH=cv2,PIL,... python -m fsabs.adapters.patch PROGRAM [ARGUMENT...]")
    folders = [os.path.dirname(startup.__file__), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(folders)
    options = sys.orig_argv[1 : sys.orig_argv.index("-m")]  # of Python itself
    os.execv(sys.executable, [sys.executable, *options, *sys.argv[1:]])
