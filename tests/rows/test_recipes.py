"""Sources for others' loops, run with the real libraries where they are installed."""

from __future__ import annotations

import importlib
import importlib.util
import json
import pickle
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import fsabs
from fsabs.adapters.grain import FileSource, RecordSource
from fsabs.adapters.torch import Loader, TokenDataset
from fsabs.readers.data import TokenDataReader, TokenWriter
from fsabs.readers.recordio import RecordWriter
from tests.servers.moto import MotoServer

pytestmark = pytest.mark.timeout(180)

RECIPES = Path(__file__).parents[2] / "examples" / "recipes"


def recipe(name: str, *needed: str) -> ModuleType:
    """Import a recipe; skip where a library that it is for is not installed."""
    for package in needed:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    sys.path.insert(0, str(RECIPES))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(RECIPES))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """100 records in each of several formats, and files."""
    fs = fsabs.from_url(tmp_path / "data", create=True)
    for name in ("recordio", "parquet", "jsonl", "tokens", "files"):
        fs.mkdir(name)
    for shard in range(4):
        numbers = range(25 * shard, 25 * shard + 25)
        with RecordWriter(fs, f"recordio/{shard}") as file:
            for number in numbers:
                file.write(b"%d" % number)
        pq.write_table(pa.table({"id": numbers, "x": numbers}), tmp_path / f"data/parquet/{shard}.parquet", 10)
        lines = "".join(json.dumps({"id": number}) + "\n" for number in numbers)
        fs.write_bytes(f"jsonl/{shard}.jsonl", lines.encode())
        with TokenWriter(fs, f"tokens/{shard}") as tokens:
            for number in numbers:
                tokens.write([number] * 5)
        fs.write_bytes(f"files/{shard}.txt", b"%d" % shard)
    return tmp_path / "data"


def test_sources_by_number(folder: Path) -> None:
    recordio = RecordSource(folder / "recordio")
    assert [int(recordio[number]) for number in (0, 99, 24, 25)] == [0, 99, 24, 25]
    parquet = RecordSource(f"{folder}/parquet/*.parquet", columns=["id"])
    assert [parquet[number] for number in range(100)] == [{"id": number} for number in range(100)]
    assert RecordSource(folder / "jsonl")[np.int64(77)] == {"id": 77}
    windows = RecordSource(TokenDataReader(folder / "tokens", 4, layout="documents"))
    assert len(windows) == 100
    assert windows[31]["tokens"].tolist() == [31] * 5
    fsabs.pack(fsabs.Local(str(folder / "files")), fsabs.Local(str(folder)), "files.zip")
    for where in (folder / "files", folder / "files.zip"):
        files = FileSource(where)
        assert [files[number] for number in range(4)] == [b"0", b"1", b"2", b"3"]
        assert pickle.loads(pickle.dumps(files))[3] == b"3"
    assert FileSource(folder / "files", ["2.txt"])[0] == b"2"
    for source in (recordio, parquet, windows, files):
        for index in (len(source), -1):
            with pytest.raises(IndexError):
                source[index]
    copy = pickle.loads(pickle.dumps(parquet))
    assert copy[99] == {"id": 99}
    assert repr(copy) == repr(parquet) == repr(RecordSource(f"{folder}/parquet/*.parquet", columns=["id"]))
    pq.write_table(pa.table({"id": range(25), "x": range(1, 26)}), folder / "parquet/0.parquet", 10)
    assert repr(RecordSource(f"{folder}/parquet/*.parquet", columns=["id"])) != repr(parquet)


@pytest.mark.parametrize("kind", ["recordio", "parquet"])
def test_grain_shuffles_and_resumes(folder: Path, kind: str) -> None:
    batches = recipe("grain_source", "grain").batches

    def numbers(some: Any) -> list[int]:
        values = [batch["id"] if isinstance(batch, dict) else batch for batch in some]
        return [int(one) for batch in values for one in batch]

    whole = numbers(batches(folder / kind, 7, 3))
    assert sorted(whole) == list(range(100))
    iterator = batches(folder / kind, 7, 3)
    seen = numbers(next(iterator) for _ in range(5))
    state = iterator.get_state()
    again = batches(folder / kind, 7, 3)
    again.set_state(state)
    assert seen + numbers(again) == whole


def test_grains_loader_reads_in_processes_and_refuses_other_data(folder: Path) -> None:
    if importlib.util.find_spec("grain") is None:
        pytest.skip("grain is not installed")
    import grain

    def loader(source: Any) -> Any:
        sampler = grain.samplers.IndexSampler(
            len(source), grain.sharding.NoSharding(), shuffle=True, seed=1, num_epochs=1
        )
        return grain.DataLoader(data_source=source, sampler=sampler, worker_count=0)

    source = RecordSource(folder / "recordio")
    iterator = iter(loader(source))
    seen = [int(next(iterator)) for _ in range(30)]
    state = iterator.get_state()
    again = iter(loader(RecordSource(folder / "recordio")))
    again.set_state(state)
    assert sorted(seen + [int(record) for record in again]) == list(range(100))
    with RecordWriter(fsabs.Local(str(folder)), "recordio/0") as file:
        for number in range(25):
            file.write(b"%d!" % number)
    with pytest.raises(ValueError, match="source"):
        iter(loader(RecordSource(folder / "recordio"))).set_state(state)


@pytest.mark.nightly
@pytest.mark.skipif(importlib.util.find_spec("megatron") is None, reason="megatron-core is not installed")
def test_megatron_reads_from_a_store(moto: MotoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    moto.create_bucket("megatron")
    for name, value in (
        ("AWS_ENDPOINT_URL", moto.endpoint),
        ("AWS_ACCESS_KEY_ID", moto.access_key),
        ("AWS_SECRET_ACCESS_KEY", moto.secret_key),
        ("AWS_DEFAULT_REGION", moto.region),
    ):
        monkeypatch.setenv(name, value)
    builder = IndexedDatasetBuilder(str(tmp_path / "x.bin"), dtype=np.uint16)
    documents = [list(range(number, number + 1 + number % 7)) for number in range(40)]
    for document in documents:
        builder.add_document(torch.tensor(document), [len(document)])
    builder.finalize(str(tmp_path / "x.idx"))
    store = fsabs.from_url("s3://megatron/tokens")
    for name in ("x.bin", "x.idx"):
        store.write_bytes(name, (tmp_path / name).read_bytes())
    found = recipe("megatron_reader").open_indexed("s3://megatron/tokens/x", str(tmp_path / "cache"))
    assert [found[number].tolist() for number in range(40)] == documents
    assert found.get(6, offset=2, length=3).tolist() == documents[6][2:5]
    # And the files of Megatron's own builder are read here, as the files of our writer are read there.
    windows = TokenDataset("s3://megatron/tokens", 6, layout="documents")
    assert [sample["tokens"][sample["mask"]].tolist() for sample in windows] == documents
    with TokenWriter(store, "y", "int32") as file:
        for document in documents:
            file.write(document)
    ours = recipe("megatron_reader").open_indexed("s3://megatron/tokens/y", str(tmp_path / "cache"))
    assert [ours[number].tolist() for number in range(40)] == documents
    assert len(ours.document_indices) == 41


@pytest.mark.nightly  # it asks for torch of the nightly channel, and is not among what the tests install
def test_torchtitan_resumes_with_other_ranks(folder: Path) -> None:
    loader_type = recipe("torchtitan_loader", "torchtitan", "tyro").FsabsDataLoader

    def loaders(ranks: int) -> list[Any]:
        config = loader_type.Config(dataset=str(folder / "tokens"), seed=1)
        return [config.build(dp_rank=rank, dp_world_size=ranks, seq_len=4, local_batch_size=2) for rank in range(ranks)]

    states: dict[str, Any] = {}
    seen: list[int] = []

    def take(loader: Any, steps: int) -> None:
        batches = iter(loader)
        for _ in range(steps):
            inputs, labels = next(batches)
            assert inputs["input"].shape == labels.shape == (2, 4)
            seen.extend(inputs["input"][:, 0].tolist())

    for loader in loaders(2):
        take(loader, 7)
        states |= loader.state_dict()
    for loader in loaders(3):
        loader.load_state_dict(states)
        take(loader, 12)
    assert len(seen) == 100
    # Windows begin at tokens 0, 4, 8 ... of each file, in which each number stands five times.
    expected = [token for shard in range(4) for token in [25 * shard + at // 5 for at in range(0, 121, 4)]]
    assert not set(seen) - set(expected)
    assert max(seen.count(number) - expected.count(number) for number in set(seen)) <= 0


def _repeated(row: dict[str, int]) -> list[int]:
    return [row["id"]] * (1 + row["id"] % 7)


@pytest.mark.nightly
@pytest.mark.parametrize("packs", [False, True])
def test_hugging_faces_trainer_continues_at_the_batch(
    packs: bool, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("transformers", "accelerate"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    from transformers import TrainingArguments

    from fsabs.adapters.torch.transformers import LoaderTrainer

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(()))
            self.seen: list[list[list[int]]] = []

        def forward(self, tokens: torch.Tensor, **_: Any) -> dict[str, torch.Tensor]:
            self.seen.append(tokens.tolist())
            return {"loss": (self.weight - tokens.float().mean()) ** 2}

    def trainer(model: Model, steps: int) -> Any:
        if packs:
            data = TokenDataset(folder / "jsonl", 4, tokenize=_repeated, seed=2)
        else:
            data = TokenDataset(folder / "tokens", 4, layout="documents", seed=2)
        arguments = TrainingArguments(
            str(tmp_path / "out"), max_steps=steps, save_steps=9, report_to=[], use_cpu=True, disable_tqdm=True
        )
        epochs = {"steps": 15} if packs else {}
        return LoaderTrainer(model, arguments, train_loader=Loader(data, 4, **epochs))  # type: ignore[arg-type]

    whole, first, second = Model(), Model(), Model()
    trainer(whole, 20).train()

    def killed(*_: Any, **options: Any) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="killed"):
        patch.setattr("transformers.trainer.rotate_checkpoints", killed)  # the older ones are not to be removed before
        trainer(first, 9).train()
    trainer(second, 20).train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-9"))
    assert len(first.seen) == 9
    assert first.seen + second.seen == whole.seen
