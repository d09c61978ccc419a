"""What every FS is: the FS itself, blobs and the files on them, writers, keys, errors, identities, layers, and what
happens at a fork. Everything else in this package stands on it.
"""
