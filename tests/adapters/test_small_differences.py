"""What users of fsspec, torch, torchvision and Lightning know: signed URLs, programs, empty classes, no marks."""

from __future__ import annotations

import urllib.request
import warnings
from pathlib import Path
from typing import Any

import fsspec
import pytest

import fsabs
from fsabs.backends.s3 import S3
from tests.servers.moto import MotoServer
from tests.servers.shared import unique


@pytest.fixture
def bucket(moto: MotoServer, monkeypatch: pytest.MonkeyPatch) -> S3:
    name = unique("small")
    moto.create_bucket(name)
    for variable, value in moto.environment.items():
        monkeypatch.setenv(variable, value)
    found = fsabs.from_url(f"s3://{name}/")
    assert isinstance(found, S3)
    return found


def test_fsspec_signs_urls_where_the_store_does(bucket: S3, tmp_path: Path) -> None:
    bucket.write_bytes("d/x", b"content")
    whole = fsspec.filesystem("fsabs+s3")
    for url in (bucket.fsspec().sign("d/x", expiration=60), whole.sign(f"{bucket.bucket}/d/x")):
        with urllib.request.urlopen(url, timeout=20) as response:
            assert response.read() == b"content"
    with pytest.raises(OSError, match="not signed"):
        fsabs.from_url(tmp_path).fsspec().sign("x")


def test_patched_torch_saves_and_loads_programs(bucket: S3) -> None:
    torch = pytest.importorskip("torch")
    where = f"s3://{bucket.bucket}/models"

    class Twice(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return 2 * x

    one = torch.ones(2)
    with fsabs.patch("torch"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        torch.jit.save(torch.jit.trace(Twice(), one), f"{where}/traced.pt")
        assert torch.jit.load(f"{where}/traced.pt")(one).tolist() == [2, 2]
        torch.export.save(torch.export.export(Twice(), (one,)), f"{where}/exported.pt2")
        assert torch.export.load(f"{where}/exported.pt2").module()(one).tolist() == [2, 2]
    assert sorted(bucket.list("models")) == ["exported.pt2", "traced.pt"]


def test_classes_without_images_are_allowed_as_in_torchvision(tmp_path: Path) -> None:
    from fsabs.adapters.torch import ImageFolder

    for name in ("cats", "dogs", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "cats" / "a.png").write_bytes(b"a")
    (tmp_path / "dogs" / "b.png").write_bytes(b"b")
    with pytest.raises(FileNotFoundError, match="no image"):
        ImageFolder(tmp_path, loader=bytes)
    found = ImageFolder(tmp_path, loader=bytes, allow_empty=True)
    assert found.class_to_idx == {"cats": 0, "dogs": 1, "empty": 2}
    assert [found[index] for index in range(len(found))] == [(b"a", 0), (b"b", 1)]


def test_the_removal_of_what_training_resumed_from_is_warned_of(bucket: S3) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("pytorch_lightning")
    from fsabs.adapters.torch.lightning import FsabsCheckpointIO

    first, second = (f"s3://{bucket.bucket}/run/{name}.ckpt" for name in ("first", "second"))
    io = FsabsCheckpointIO()
    io.save_checkpoint({"step": 1}, first)
    io.save_checkpoint({"step": 2}, second)
    assert sorted(bucket.list("", recursive=True)) == ["run/", "run/first.ckpt", "run/second.ckpt"]
    assert io.load_checkpoint(first) == {"step": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        io.remove_checkpoint(second)
    with pytest.warns(UserWarning, match="resumed from is removed"):
        io.remove_checkpoint(first)
    assert list(bucket.list("", recursive=True)) == []
