"""Backends: one FS class for each kind of store. Backends know nothing of containers, caches or traces."""
