"""Files on their way between any two FS: copies, moves and syncs of trees, packing and unpacking.

One file is copied in `files.py`; many, small ones in batches, in `copier.py`; trees in `trees.py`, on the walks and
comparisons of `walks.py`. `pack.py` and `unpack.py` are about containers. All of them ask `core/identity.py` whether
two names are one file, before they write or remove.
"""
