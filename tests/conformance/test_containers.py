"""The kit over containers: in a local file, in one another, and on stores."""

from __future__ import annotations

import functools
import zipfile

import pytest

from fsabs.testing import SubFSSubject
from tests.conformance.archives import deflated_zip_in, hdf5_in, packed_hdf5_in, tar_in, zip_in
from tests.conformance.cells import ARCHIVE, BEYOND_AN_INDEX, Cell

HDF5 = ARCHIVE._replace(replace=True, last_modified=False)


class Archive(Cell):
    """A container in a file of a store."""

    capabilities = ARCHIVE
    live = False


class TestZip(Archive):
    made = zip_in
    in_process = True


class TestTar(Archive):
    made = tar_in
    in_process = True


class TestHdf5(Archive):
    capabilities = HDF5
    made = hdf5_in
    in_process = True


class TestZipOnS3(Archive):
    """Reading a container in an object, also in the processes that inherit or unpickle it."""

    made = zip_in
    over = "ceph"
    modules = ("checks_files", "checks_processes")


# ---- other ways to pack


@pytest.mark.nightly
class TestDeflatedZip(Archive):
    made = deflated_zip_in


@pytest.mark.nightly
class TestTarGz(Archive):
    made = functools.partial(tar_in, name="a.tar.gz")


@pytest.mark.nightly
class TestZipInZip(Archive):
    made = staticmethod(lambda outer: zip_in(zip_in(outer, "outer.zip")))
    processes = False


@pytest.mark.nightly
class TestZipInDeflatedZip(Archive):
    made = staticmethod(lambda outer: zip_in(zip_in(outer, "outer.zip", zipfile.ZIP_DEFLATED)))


@pytest.mark.nightly
class TestHdf5InHdf5(Archive):
    capabilities = HDF5
    made = staticmethod(lambda outer: hdf5_in(packed_hdf5_in(outer)))


@pytest.mark.nightly
class TestSubFSOfZip(Archive):
    made = staticmethod(lambda outer: SubFSSubject(zip_in(outer)))
    processes = False


# ---- other stores


class OnAStore(Archive):
    """What reaches the store through the container."""

    modules = BEYOND_AN_INDEX
    processes = False


@pytest.mark.nightly
class TestZipInZipOnS3(OnAStore):
    made = staticmethod(lambda outer: zip_in(zip_in(outer, "outer.zip")))
    over = "ceph"


@pytest.mark.nightly
class TestTarInZipOnS3(OnAStore):
    made = staticmethod(lambda outer: tar_in(zip_in(outer, "outer.zip")))
    over = "ceph"


@pytest.mark.nightly
class TestHdf5OnS3(OnAStore):
    capabilities = HDF5
    made = hdf5_in
    over = "ceph"
    processes = True


@pytest.mark.nightly
class TestZipOnHdfs(OnAStore):
    made = zip_in
    over = "hdfs"


@pytest.mark.nightly
class TestTarOnHdfs(OnAStore):
    made = tar_in
    over = "hdfs"
    processes = True


@pytest.mark.nightly
class TestHdf5OnHdfs(OnAStore):
    capabilities = HDF5
    made = hdf5_in
    over = "hdfs"


@pytest.mark.nightly
class TestTarOnAzure(OnAStore):
    made = tar_in
    over = "azurite"


@pytest.mark.nightly
class TestZipInZipOnGCS(OnAStore):
    made = staticmethod(lambda outer: zip_in(zip_in(outer, "outer.zip")))
    over = "gcs_store"
