"""Instances: what goes in comes out, and bytes that nobody encoded do no harm."""

from __future__ import annotations

import contextlib
import enum
import itertools
import pickle
import struct
import tracemalloc
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fsabs.readers import instances
from fsabs.readers.instances import HEAD, MAX_DEPTH, decode, encode

quick = pytest.mark.quick

KEYS = st.one_of(
    st.text(), st.binary(), st.booleans(), st.none(), st.integers(-(1 << 63), (1 << 63) - 1), st.floats(allow_nan=False)
)
PLAIN = st.one_of(KEYS, st.integers(), st.floats(), st.text(st.characters(codec=None), max_size=300))
DTYPES = st.one_of(
    arrays.scalar_dtypes(),
    arrays.byte_string_dtypes(),
    arrays.unicode_string_dtypes(),
    arrays.array_dtypes(allow_subarrays=True),
    arrays.nested_dtypes(),
)
ARRAYS = arrays.arrays(DTYPES, arrays.array_shapes(min_dims=0, min_side=0, max_side=4))
INSTANCES = st.recursive(
    st.one_of(PLAIN, ARRAYS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.tuples(inner, inner), st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=8,
)


def same(one: Any, other: Any) -> bool:
    """Whether they are of the same types and values, to the bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray | np.generic):
        orders = one.flags.f_contiguous == other.flags.f_contiguous
        return orders and one.shape == other.shape and same_elements(one, other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    if isinstance(one, float):
        return struct.pack("d", one) == struct.pack("d", other)
    return bool(one == other)


def same_elements(one: Any, other: Any) -> bool:
    """Whether they are of one dtype, and each field has the same bytes; what is between the fields is nobody's."""
    if one.dtype != other.dtype:
        return False
    if one.dtype.names:
        return all(same_elements(one[name], other[name]) for name in one.dtype.names)
    return bool(one.tobytes() == other.tobytes())


@given(INSTANCES)
@settings(max_examples=80, deadline=None)
def test_round_trip(instance: Any) -> None:
    data = encode(instance)
    assert same(decode(data), instance)
    assert same(decode(bytearray(data)), instance)
    assert encode(decode(data)) == data


@quick
@pytest.mark.parametrize(
    "instance",
    [
        -129,
        2**31,
        2**63,
        -(10**400),
        "ü" * 300,
        "\ud800",
        b"x" * 255,
        True,
        None,
        {"a": {b"b": [None]}, 3: 4.5, None: False},
        list(range(1000)),
        (np.arange(784, dtype="f8").reshape(28, 28), 7),
        np.zeros((3, 0, 2), "c16"),
        np.asfortranarray(np.arange(6, dtype=">i2").reshape(2, 3)),
        np.arange(20).reshape(4, 5)[::2, ::-1],
        np.array(["2026-11-20", "NaT"], "M8[D]"),
        np.array([1], "m8[25us]"),
        np.zeros(2, "U0"),
        np.zeros(2, "V0"),
        np.zeros(3, np.dtype([("a", "<i4"), ("b", ">f8", (2, 2)), ("c", [("d", "S3")])], align=True)),
        np.zeros(2, np.dtype({"names": ["x"], "formats": ["u1"], "offsets": [3], "itemsize": 9})),
        np.zeros(1, np.dtype([])),
        np.zeros(1, np.dtype([(("a title", "x"), "<i4"), ("y", "i1")])),
        np.datetime64("2026"),
        np.str_("text"),
        np.zeros(2, "g"),
    ],
    ids=repr,
)
def test_what_an_instance_can_be(instance: Any) -> None:
    data = encode(instance)
    assert data.startswith(HEAD)
    found = decode(data)
    assert type(found) is type(instance)
    if isinstance(instance, np.ndarray):
        assert found.dtype == instance.dtype
        assert found.shape == instance.shape
        assert same_elements(found, instance)
        assert found.flags.owndata
        assert found.flags.writeable
        fortran = instance.flags.f_contiguous and not instance.flags.c_contiguous
        assert not fortran or found.flags.f_contiguous
    elif not isinstance(instance, tuple):
        assert same(found, instance)


@quick
def test_it_is_compact() -> None:
    sizes = {2: 4, 1000: 7, "abc": 7, None: 3, True: 3, 1.5: 11, (): 4, (1, 2): 8}
    assert {instance: len(encode(instance)) for instance in sizes} == sizes
    image = np.zeros((28, 28))
    assert len(encode((image, 7))) < image.nbytes + 40 < len(pickle.dumps((image, 7), 5))


class Point(NamedTuple):
    """A subclass of tuple."""

    x: int


class Colour(enum.IntEnum):
    """A subclass of int."""

    RED = 1


PICKLED = [
    Point(1),
    Colour.RED,
    {1, 2},
    1j,
    [Point(1)],
    {"a": Colour.RED},
    np.array([None]),
    np.zeros(1, [("o", "O")]),
    np.zeros(1).view(np.recarray),
    bytearray(b"x"),
]


@quick
def test_pickles_are_asked_for_on_both_sides() -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return exec, ("raise SystemExit",)

    for instance in PICKLED:
        with pytest.raises(TypeError, match="allow_pickle"):
            encode(instance)
        data = encode(instance, allow_pickle=True)
        with pytest.raises(ValueError, match="allow_pickle"):
            decode(data)
        assert repr(decode(data, allow_pickle=True)) == repr(instance)
    trapped = encode([1, (Trap(),)], allow_pickle=True)
    with pytest.raises(ValueError):
        decode(trapped)
    with pytest.raises(SystemExit):
        decode(trapped, allow_pickle=True)


@quick
def test_keys_and_depth_have_bounds() -> None:
    for key in ((1,), 2**63, Colour.RED, np.int64(1)):
        with pytest.raises(TypeError, match="key"):
            encode({key: 1})
    nested: Any = 0
    for _ in range(MAX_DEPTH):
        nested = [nested]
    assert decode(encode(nested)) == decode(encode(nested), allow_pickle=True) == nested
    with pytest.raises(ValueError, match="deep"):
        encode([nested])
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(ValueError, match="deep"):
        encode(cycle)
    deep = HEAD + b"\x0b\x01" * 10_000 + b"\x00"
    for allow_pickle in (False, True):
        with pytest.raises(ValueError, match="deep"):
            decode(deep, allow_pickle=allow_pickle)


# ---- hostile bytes


def array(description: bytes, elements: bytes = b"", tag: int = 13) -> bytes:
    """An array with this description."""
    return HEAD + bytes([tag]) + struct.pack("<H", len(description)) + description + elements


def described(dtype: bytes, *shape: int, order: bytes = b"C") -> bytes:
    """A description."""
    return struct.pack(f"<cB{len(shape)}Q", order, len(shape), *shape) + dtype


@quick
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x05.",
        b"\xf5\x02\x00",
        HEAD,
        HEAD + b"\x10",
        HEAD + b"\x00\x00",
        HEAD + b"\x08\xff\xff\xff\xff\xffabc",
        HEAD + b"\x08\x02\xff\xff",
        HEAD + b"\x0b\xff\xff\xff\xff\xff\x00",
        HEAD + b"\x0c\x01\x0b\x00\x00",
        HEAD + b"\x0c\x02\x03\x01\x00\x03\x01\x00",
        HEAD + b"\x0c\x01\x06\x01\x01\x00",
        array(b""),
        array(described(b"<f8", 2), bytes(15)),
        array(described(b"<f8", 2**40), bytes(80)),
        array(described(b"<f8", 2**40, 2**40), bytes(80)),
        array(described(b"|S0", *[2**62] * 2)),
        array(described(b"<f8", 1, order=b"X"), bytes(8)),
        array(bytes([67, 255]), bytes(80)),
        array(described(b"<f8", *[1] * 65), bytes(8)),
        array(described(b"|O", 1), bytes(8)),
        array(described(b"<i3", 1), bytes(8)),
        array(described(b"<V999999999999", 1), bytes(8)),
        array(described(b"<M8[zz]", 1), bytes(8)),
        array(described(b"[", 1), bytes(8)),
        array(described(b"[" * 30_000, 1), bytes(8)),
        array(described(b'["<f8"]', 1), bytes(8)),
        array(described(b'["<f8",["x"]]', 1), bytes(8)),
        array(described(b'["<f8",[2000000000,2000000000]]', 1), bytes(8)),
        array(described(b'["|O",[1]]', 1), bytes(8)),
        array(described(b'[8,["a",0,"|O"]]', 1), bytes(8)),
        array(described(b'[8,["a",0]]', 1), bytes(8)),
        array(described(b'[8,[1,0,"<f8"]]', 1), bytes(8)),
        array(described(b'[8,["a",4,"<f8"]]', 1), bytes(8)),
        array(described(b'[8,["a",0,"<f4"],["a",4,"<f4"]]', 1), bytes(8)),
        array(described(b'[99999999999999999999,["a",0,"<f4"]]', 1), bytes(8)),
        array(described(b'[true,["a",0,"<f4"]]', 1), bytes(8)),
        array(described(b"<f8", 1), bytes(8), tag=14),
        HEAD + b"\x0f\x01.",
    ],
)
def test_what_is_no_instance_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode(data)


EXAMPLES = [
    encode((np.arange(4.0).reshape(2, 2), 7)),
    encode({"a": [1, 2.5, None], b"b": (True, "text" * 80)}),
    encode(np.zeros(2, [("x", "<i4"), ("y", "S2", (3,))])),
    encode([np.datetime64("2026"), 2**70, []]),
]


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_every_cut_and_every_flipped_byte_is_an_instance_or_an_error(number: int) -> None:
    data = EXAMPLES[number]
    for size in range(len(data)):
        with pytest.raises(ValueError):
            decode(data[:size])
    for at, flip in itertools.product(range(len(data)), (1, 0x10, 0x80, 0xFF)):
        with contextlib.suppress(ValueError):
            decode(data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :])


@given(st.one_of(st.binary(max_size=200), st.lists(st.sampled_from([*EXAMPLES, *(bytes([n]) for n in range(256))]))))
@settings(max_examples=150, deadline=None)
def test_any_bytes(parts: Any) -> None:
    with contextlib.suppress(ValueError):
        decode(HEAD + (parts if isinstance(parts, bytes) else b"".join(parts)))


@quick
def test_what_is_claimed_takes_no_memory() -> None:
    claims = [
        HEAD + b"\x09\xff\xff\xff\xff\xff" + bytes(1000),
        HEAD + b"\x0b\xff\xff\xff\xff\xff" + bytes(1000),
        HEAD + b"\x0b\xff\xe8\x03\x00\x00" * 60 + bytes(1000),
        array(described(b"<f8", 2**40), bytes(1000)),
        array(described(b"<V900000000", 1), bytes(1000)),
    ]
    tracemalloc.start()
    try:
        for data in claims:
            with pytest.raises(ValueError):
                decode(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@quick
def test_keys_whose_hashes_collide_can_not_be_said() -> None:
    keys = [number * ((1 << 61) - 1) for number in range(5, 1000)]
    assert len(set(map(hash, keys))) == 1
    with pytest.raises(TypeError, match="key"):
        encode(dict.fromkeys(keys))
    claimed = b"".join(encode(key)[2:] + b"\x00" for key in keys)
    with pytest.raises(ValueError, match="key"):
        decode(HEAD + b"\x0c\xff" + struct.pack("<I", len(keys)) + claimed)


@quick
def test_countless_descriptions_are_not_all_kept() -> None:
    for size in range(3000):
        decode(array(described(b"|S%d" % (size + 1), 0)))
    assert instances.planned.cache_info().currsize <= 1024


@quick
def test_elements_of_no_size_are_bounded() -> None:
    for form, extent in ((b"[0]", 1 << 60), (b"|V0", 1 << 60), (b'["<f8",[0]]', 1 << 60), (b"|S0", 3), (b"<U0", 0)):
        description = struct.pack("<cBQ", b"C", 1, extent) + form
        with pytest.raises(ValueError, match="elements of no size"):
            decode(HEAD + b"\x0d" + struct.pack("<H", len(description)) + description)
    for array in (np.zeros(3, []), np.zeros((2, 0), "V0"), np.zeros(2, [("a", "<f8", (0,))])):
        found = decode(encode(array))
        assert (found.shape, found.dtype) == (array.shape, array.dtype)
    for array in (np.zeros(100_000, []), np.zeros(3, [("a", "S0")])["a"]):
        with pytest.raises(TypeError, match="allow_pickle"):
            encode(array)


@quick
def test_keys_that_are_numbers_are_bounded() -> None:
    most: dict[Any, None] = dict.fromkeys(range(1 << 14))
    assert decode(encode(most)) == most
    assert len(decode(encode({str(number): None for number in range(20_000)}))) == 20_000
    with pytest.raises(ValueError, match="keys that are numbers"):
        encode({**most, "more": None, -1: None})
    for key in (b"\x03\x07", b"\x07" + bytes(8)):
        with pytest.raises(ValueError, match="keys that are numbers"):
            decode(HEAD + b"\x0c\xff" + struct.pack("<I", 20_000) + (key + b"\x00") * 20_000)
