"""HDF5 files as filesystems, through h5py."""

from .container import Hdf5

__all__ = ["Hdf5"]
