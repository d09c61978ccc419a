"""The conformance kit over containers on HDFS."""

from __future__ import annotations

from tests.conformance.archives import hdf5_in, tar_in, zip_in
from tests.conformance.containers import HDF5, ContainerConformance
from tests.conformance.selections import WithoutProcesses


class TestZipOnHdfs(WithoutProcesses, ContainerConformance):
    made = zip_in
    over = "hdfs"


class TestTarOnHdfs(ContainerConformance):
    made = tar_in
    over = "hdfs"


class TestHdf5OnHdfs(WithoutProcesses, ContainerConformance):
    capabilities = HDF5
    made = hdf5_in
    over = "hdfs"
