"""One index for a chain of indices, against numpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensordict._kernel.index_chain import NotAnIndexError, compose

shapes = st.lists(st.integers(0, 4), min_size=0, max_size=4).map(tuple)


@st.composite
def one_index(draw, shape):
    """A basic index, with steps that torch has, for an array of `shape`."""
    items = []
    for size in shape[: draw(st.integers(0, len(shape)))]:
        bound = st.none() | st.integers(-5, 5)
        taken = st.builds(slice, bound, bound, st.none() | st.integers(1, 3))
        if size:
            taken |= st.integers(-size, size - 1)
        items.append(draw(taken))
    if draw(st.booleans()):
        items.insert(draw(st.integers(0, len(items))), None)
    if draw(st.booleans()):
        # The ellipsis stands for no dimension between two entries, or for the rest at the end.
        items.append(Ellipsis)
    if len(items) == 1 and draw(st.booleans()):
        return items[0]
    return tuple(items)


@st.composite
def chains(draw):
    array = np.arange(4**4)[: int(np.prod(shape := draw(shapes)))].reshape(shape)
    chain, result = (), array
    for _ in range(draw(st.integers(1, 4))):
        index = draw(one_index(result.shape))
        result = result[index]
        chain = (chain, index)
    return array, chain, result


@given(chains())
def test_one_index_stands_for_many(case):
    array, chain, expected = case
    try:
        index = compose(array.shape, chain)
    except NotAnIndexError:
        assert np.size(expected) == 0
        return
    found = array[index]
    assert np.shape(found) == np.shape(expected)
    assert np.array_equal(found, expected)


def test_an_ellipsis_in_the_middle():
    array = np.arange(24).reshape(2, 3, 4)
    chain = (((), (slice(None), slice(1, None))), (0, ..., 2))
    assert np.array_equal(array[compose(array.shape, chain)], array[:, 1:][0, ..., 2])


def test_a_new_dimension_cannot_be_emptied_by_one_index():
    with pytest.raises(NotAnIndexError):
        compose((3,), (((), None), slice(1, 1)))
