"""Posteriors as records: Flower's own bytes, read without a copy, whatever a client may send."""

from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from hypothesis import given, settings
from hypothesis import strategies as st

from bfl.federation.wire import VECTORS, posterior_from_arrays, posterior_to_arrays
from bfl.posteriors import Posterior

TYPES = ["float16", "float32", "float64", ">f4", ">f8"]


def posterior(size: int, points: int, dtype: str) -> Posterior:
    rng = np.random.default_rng(size)
    parts = (rng.normal(size=size), rng.uniform(0.1, 1, size), rng.normal(size=points))
    return Posterior(*(part.astype(dtype) for part in parts))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("size", "points"), [(0, 0), (0, 3), (5, 0), (1000, 17)])
def test_the_record_is_the_one_that_flower_makes(size: int, points: int, dtype: str) -> None:
    given_ = posterior(size, points, dtype)
    record = posterior_to_arrays(given_)
    for name in VECTORS:
        flowers, ours = Array(getattr(given_, name)), record[name]
        assert (ours.dtype, ours.shape, ours.stype) == (flowers.dtype, flowers.shape, flowers.stype)
        assert ours.data == flowers.data
        received = getattr(posterior_from_arrays(record), name)
        assert received.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(received, getattr(given_, name))


def test_strided_vectors_are_sent_as_they_look() -> None:
    vector = np.arange(20, dtype=np.float32)
    sent = Posterior(vector[::2], vector[1::2], vector[:0])
    received = posterior_from_arrays(posterior_to_arrays(sent))
    np.testing.assert_array_equal(received.mean, vector[::2])
    np.testing.assert_array_equal(received.variance, vector[1::2])


def arrays(**fields: Any) -> ArrayRecord:
    """Return a record whose mean has other fields than a sound one."""
    record = posterior_to_arrays(posterior(4, 2, "float32"))
    for name, value in fields.items():
        record["mean"].__dict__[name] = value
    return record


@pytest.mark.parametrize("shape", [(3,), (5,), (-4,), (4, 1), (), (2**40,), ("4",), (4.0,)])
def test_a_wrong_shape_beside_the_data_does_not_matter(shape: Any) -> None:
    """NumPy's header, which lies with the data, is what counts, as for Flower itself."""
    try:
        received = posterior_from_arrays(arrays(shape=shape))
    except TypeError:
        assert not all(isinstance(n, int) for n in shape)
    else:
        np.testing.assert_array_equal(received.mean, posterior(4, 2, "float32").mean)


@settings(max_examples=300, deadline=None)
@given(
    cut=st.just(144) | st.integers(0, 144),
    more=st.just(b"") | st.binary(max_size=8),
    place=st.integers(0, 143),
    byte=st.integers(0, 255),
)
def test_damaged_data_are_read_as_flower_reads_them(
    cut: int, more: bytes, place: int, byte: int
) -> None:
    """Either both read the same, or both refuse."""
    damaged = bytearray(posterior_to_arrays(posterior(4, 2, "float32"))["mean"].data)
    damaged[place] = byte
    data = bytes(damaged[:cut] + more)
    record = arrays(data=data)
    try:
        expected = record["mean"].numpy()
    except Exception:
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever NumPy makes of it
            posterior_from_arrays(record)
    else:
        np.testing.assert_array_equal(posterior_from_arrays(record).mean, expected)


def test_other_types_are_left_to_flower_and_other_formats_refused() -> None:
    record = posterior_to_arrays(posterior(4, 2, "float32"))
    for vector in (np.arange(4), np.array([1 + 2j])):
        record["mean"] = Array(vector)
        assert posterior_from_arrays(record).mean.dtype == vector.dtype
    with pytest.raises(TypeError, match="Unsupported serialization type"):
        posterior_from_arrays(arrays(stype="torch"))
