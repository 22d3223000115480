"""A SuperLink's store that believes no client about the objects of others.

An object is named by the SHA-256 of its content, and announced, with its children's names, before
that is uploaded. Flower believes who announces an object first: a client that announces one that
others will send too, such as an empty vector, with a child of its own invention, has the messages
of all others refused, and the server's among them.
"""

from __future__ import annotations

from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import (
    get_object_children_ids_from_object_content,
    iterate_object_tree,
)
from flwr.supercore.object_store.sql_object_store import SqlObjectStore
from flwr.supercore.state.schema.objectstore_models import ObjectChild, StoredObject
from sqlalchemy import delete, select, update


class ObjectStore(SqlObjectStore):
    """A store that takes an object's children from its content; until then, from who is last."""

    def preregister(self, run_id: int, object_tree: ObjectTree) -> list[str]:
        """Announce objects; of one that was announced otherwise nothing is kept."""
        with self._mutation_session() as session:
            for part in iterate_object_tree(object_tree):
                announced = {child.object_id for child in part.children}
                children = select(ObjectChild.child_id).where(
                    ObjectChild.parent_id == part.object_id
                )
                if set(session.scalars(children)) != announced:
                    content = self.get(part.object_id)  # empty before it is uploaded
                    if content is not None and (
                        not content
                        or set(get_object_children_ids_from_object_content(content)) == announced
                    ):
                        # Also as a child of others: no announced tree grows by what follows.
                        session.execute(
                            update(StoredObject)
                            .where(StoredObject.object_id.in_(children))
                            .values(ref_count=StoredObject.ref_count - 1)
                        )
                        # The database drops the rows of its parents and children with it.
                        own = StoredObject.object_id == part.object_id
                        session.execute(delete(StoredObject).where(own))
            return super().preregister(run_id, object_tree)
