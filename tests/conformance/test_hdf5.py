"""The conformance kit over HDF5 files on the local disk, in one another."""

from __future__ import annotations

from fsabs.testing import SubFSSubject
from tests.conformance.archives import hdf5_in, packed_hdf5_in
from tests.conformance.containers import HDF5, ContainerConformance
from tests.conformance.selections import WithoutProcesses


class TestHdf5(ContainerConformance):
    capabilities = HDF5
    made = hdf5_in
    in_process = True


class TestHdf5InHdf5(ContainerConformance):
    capabilities = HDF5
    made = staticmethod(lambda outer: hdf5_in(packed_hdf5_in(outer)))


class TestSubFSOfHdf5(WithoutProcesses, ContainerConformance):
    capabilities = HDF5
    made = staticmethod(lambda outer: SubFSSubject(hdf5_in(outer)))
