"""Names and their ids."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from refactorgnn.errors import UserError, unknown_name


class Vocabulary:
    """An ordered set of names: name ↔ id, both ways vectorised.

    Args:
        names: Distinct names; the position of a name is its id.
        kind: What the names are (``"entity"``, ``"relation"``), for error messages.
    """

    def __init__(self, names: Iterable[str] | pa.Array, kind: str) -> None:
        self.names: pa.Array = (
            names.cast(pa.string()) if isinstance(names, pa.Array) else pa.array(list(names), type=pa.string())
        )
        self.kind = kind
        if pc.count_distinct(self.names).as_py() != len(self.names):
            raise UserError(f"the same {kind} name occurs twice in a vocabulary: names must be distinct.")

    @classmethod
    def sorted_union(cls, columns: Iterable[pa.Array], kind: str) -> Vocabulary:
        """The distinct names of several columns, sorted: the same set of names always gives the same ids."""
        distinct = [pc.unique(column).cast(pa.string()) for column in columns]
        names = pc.unique(pa.chunked_array(distinct, type=pa.string()))
        return cls(names.take(pc.array_sort_indices(names)), kind)

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names.to_pylist())

    def __contains__(self, name: object) -> bool:
        return name in self._id_of

    def __getitem__(self, index: int) -> str:
        name: str = self.names[int(index)].as_py()
        return name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and bool(self.names.equals(other.names))

    def __hash__(self) -> int:
        return hash(self.sha256)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self):,} {self.kind} names)"

    @cached_property
    def _id_of(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self)}

    @cached_property
    def sha256(self) -> str:
        """A fingerprint of the names and their order, to tell whether two files speak of the same ids."""
        digest = hashlib.sha256()
        for name in self:
            digest.update(name.encode() + b"\0")
        return digest.hexdigest()

    def id(self, name: str) -> int:
        """The id of ``name``.

        Raises:
            UserError: if there is no such name; it tells the closest ones.
        """
        found = self._id_of.get(name)
        if found is None:
            raise unknown_name(self.kind, name, list(self), list_all=len(self) <= 20)
        return found

    def ids(self, column: pa.Array) -> npt.NDArray[np.int64]:
        """The ids of a whole column of names, −1 for names that are not here."""
        if pa.types.is_dictionary(column.type):  # look each distinct name up once
            of_code = self.ids(column.dictionary)
            codes: npt.NDArray[np.int64] = of_code[column.indices.to_numpy(zero_copy_only=False)]
            return codes
        found = pc.fill_null(pc.index_in(column.cast(pa.string()), value_set=self.names), -1)
        ids: npt.NDArray[np.int64] = found.to_numpy(zero_copy_only=False).astype(np.int64)
        return ids

    def names_of(self, ids: npt.NDArray[np.int64]) -> pa.DictionaryArray:
        """The names of an array of ids, as a dictionary-encoded column."""
        return pa.DictionaryArray.from_arrays(pa.array(ids.astype(np.int32)), self.names)
