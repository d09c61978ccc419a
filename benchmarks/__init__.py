"""Benchmarks: ours and the peers' in turns, in one run; `python -m benchmarks --list` says which there are.

Only the standard library may be imported at the top of what a contestant imports: it runs in the peers' environments,
too.
"""
