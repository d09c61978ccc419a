"""Files that are filesystems: zip, tar, HDF5, over any FS and inside one another. They know nothing of backends."""
