"""Copying files between any two FS: small files many at once, large ones in pieces.

`pieces` reads one file; `FS.copy_tree` and `FS.sync_tree` are in `trees.py` and `syncing.py`, on the engine
in `copier.py`.
"""

from .pieces import PIECE as PIECE
from .pieces import pieces as pieces
