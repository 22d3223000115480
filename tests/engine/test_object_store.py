"""What a client announces decides nothing about the objects that others send."""

from itertools import pairwise
from pathlib import Path

import pytest
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import get_object_id
from flwr.supercore.object_store import object_store_factory
from flwr.supercore.object_store.object_store import ObjectStore

from bfl.engine.flower.object_store import ObjectStore as Store

RUN = 1


def content(*children: bytes) -> bytes:
    """Return an object that consists of others."""
    names = ",".join(map(get_object_id, children))
    return f"RecordDict {names} 0".encode() + b"\0"


LEAF = b"ArrayChunk  1\0a"
INNER = content(LEAF)
MESSAGE = content(INNER)


def tree(of: bytes, *children: ObjectTree) -> ObjectTree:
    """Return the announcement of an object."""
    return ObjectTree(object_id=get_object_id(of), children=children)


TRUE = tree(INNER, tree(LEAF))
INVENTED = tree(b"an invention")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    monkeypatch.setattr(object_store_factory, "SqlObjectStore", Store)
    return object_store_factory.ObjectStoreFactory(str(tmp_path / "state.db")).store()


def send(store: ObjectStore, announced: ObjectTree, *contents: bytes) -> None:
    """Announce a message and upload what is asked for."""
    wanted = store.preregister(RUN, announced)
    for each in contents:
        if get_object_id(each) in wanted:
            store.put(get_object_id(each), each)


@pytest.mark.slow
@pytest.mark.parametrize("uploaded", [False, True])
@pytest.mark.parametrize(
    "lie",
    [tree(LEAF, INVENTED), tree(INNER, INVENTED), tree(INNER), tree(INNER, tree(LEAF, INVENTED))],
    ids=["child-of-a-leaf", "another-child", "no-child", "deeper"],
)
def test_a_lie_about_an_object_does_not_keep_others_from_sending_it(
    store: ObjectStore, lie: ObjectTree, uploaded: bool
) -> None:
    send(store, tree(b"lies", lie), *((INNER, LEAF) if uploaded else ()))
    truth = tree(MESSAGE, TRUE)
    send(store, truth, LEAF, INNER, MESSAGE)
    assert store.get_object_tree(truth.object_id) == truth
    assert [store.get(get_object_id(each)) for each in (LEAF, INNER, MESSAGE)] == [
        LEAF,
        INNER,
        MESSAGE,
    ]
    # What is there is not taken for something else.
    with pytest.raises(ValueError, match="different children"):
        store.preregister(RUN, tree(b"more lies", lie))
    assert store.get_object_tree(truth.object_id) == truth
    store.delete_objects_in_run(RUN)
    assert len(store) == 0


def test_no_announced_tree_grows_by_later_announcements(store: ObjectStore) -> None:
    """Else a few short ones would make one of any size, which the SuperLink would have to write."""
    levels = [[f"{level}.{number}".encode() for number in range(3)] for level in range(12)]
    store.preregister(RUN, tree(b"root", *map(tree, levels[0])))
    for above, below in pairwise(levels):
        leaves = [tree(each) for each in below]
        store.preregister(RUN, tree(above[0] + b"!", *(tree(each, *leaves) for each in above)))
    root = store.get_object_tree(get_object_id(b"root"))
    assert len(root.children) <= 3
    assert not any(child.children for child in root.children)
