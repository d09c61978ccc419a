"""Write a small data set of two sources: stories as Parquet files, and programs as compressed JSON lines.

python make_data.py s3://bucket/text
"""

import gzip
import io
import json
import random
import sys

import pyarrow as pa
import pyarrow.parquet as pq

import fsabs

NAMES, VERBS, THINGS = ["Ada", "Alan", "Grace", "Edsger"], ["reads", "writes", "sorts"], ["a list", "a tree", "a file"]


def story(rng):
    """Return some sentences."""
    return " ".join(f"{rng.choice(NAMES)} {rng.choice(VERBS)} {rng.choice(THINGS)}." for _ in range(rng.randint(1, 12)))


def program(rng):
    """Return a function."""
    name = rng.choice(NAMES).lower()
    return f"def {name}(x):\n    return x + {rng.randint(0, 9)}\n"


def main(url):
    """Write 4 files of each source."""
    rng = random.Random(1)
    fs = fsabs.from_url(url, create=True)
    for folder in ("web", "code"):
        fs.makedirs(folder, exist_ok=True)
    for shard in range(4):
        table = pa.table({"text": [story(rng) for _ in range(200)], "url": ["https://example.com"] * 200})
        buffer = io.BytesIO()
        pq.write_table(table, buffer, row_group_size=50)
        fs.write_bytes(f"web/{shard:02}.parquet", buffer.getvalue())
        lines = "".join(json.dumps({"text": program(rng)}) + "\n" for _ in range(200))
        fs.write_bytes(f"code/{shard:02}.jsonl.gz", gzip.compress(lines.encode()))


if __name__ == "__main__":
    main(sys.argv[1])
