"""What the server and the page ask: one predictor shared by all threads, replaced as a whole when entities are added.

Readers take the current predictor and keep it for as long as their answer takes. An addition works on a shallow copy
and puts it in place in one assignment when it has succeeded, so that a reader never sees half of it, and one that fails
leaves no trace.
"""

from __future__ import annotations

import copy
import hmac
import secrets
import threading
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from refactorgnn.data.columns import TRIPLES
from refactorgnn.data.tabular import read_text
from refactorgnn.errors import UserError
from refactorgnn.predict.growing import Added, Facts, Mode
from refactorgnn.predict.predictor import Predictor
from refactorgnn.runs import CIRCUMSTANCES
from refactorgnn.server.name_search import Found, NameIndex
from refactorgnn.training.ensemble_config import EnsembleConfig, RunConfig, setting_of

WRITES_OFF = "this server takes no new entities: start it with --allow-writes."
_TOKEN_BYTES = 32
# What pasted facts are called in messages about them.
_PASTED = Path("the facts")


class PredictorService:
    """A predictor that many threads may ask while one adds entities.

    Args:
        predictor: What answers; it is not changed.
        allow_writes: Whether entities may be added.
        token: What a remote writer must show; made up if writes are allowed and none is given.

    Example:
        >>> import refactorgnn
        >>> run = refactorgnn.train("countries_part", model="refactor", layers=1, dim=8, epochs=1, out="runs/served")
        >>> service = PredictorService(refactorgnn.load_predictor(run), allow_writes=True)
        >>> service.add([("Atlantis", "borders", "France")]).entities
        ('Atlantis',)
        >>> [found.name for found in service.search_entities("atlantis", limit=1)]
        ['Atlantis']
    """

    def __init__(self, predictor: Predictor, *, allow_writes: bool = False, token: str | None = None) -> None:
        if token is not None and not allow_writes:
            raise UserError("a token protects writes, which are off: allow them, or leave the token out.")
        if token is not None and (len(token) < 16 or not token.isascii() or not token.isprintable() or " " in token):
            raise UserError("the token is too weak: use 16 or more ASCII characters without blanks.")
        self.allow_writes = allow_writes
        self.token = secrets.token_urlsafe(_TOKEN_BYTES) if allow_writes and token is None else token
        self._snapshot = _Snapshot(copy.copy(predictor))
        self._original_sizes = predictor.graph.num_entities, len(predictor.graph.triples("train"))
        self._writing = threading.Lock()

    @property
    def predictor(self) -> Predictor:
        """The current predictor: to be asked, never to be changed."""
        return self._snapshot.predictor

    def is_token(self, shown: str) -> bool:
        """Whether ``shown`` is the token, in a time that does not tell how much of it is right."""
        return self.token is not None and hmac.compare_digest(shown.encode(), self.token.encode())

    def add(
        self, facts: str | Facts, texts: Mapping[str, str | tuple[str, str]] | None = None, mode: Mode = "exact"
    ) -> Added:
        """Put new entities in, wholly or not at all; see :meth:`Predictor.add`.

        Args:
            facts: Triples of names; or text, a line for each, separated by tabs or else by commas.
            texts: A label, or ``(label, description)``, of new entities by name.
            mode: ``"exact"`` runs all layers again; ``"local"`` computes the new entities only.
        """
        if not self.allow_writes:
            raise UserError(WRITES_OFF)
        if isinstance(facts, str):
            facts = read_text(_PASTED, facts.encode(), ".tsv" if "\t" in facts else ".csv", TRIPLES)
        with self._writing:
            grown = copy.copy(self.predictor)
            added = grown.add(facts, texts, mode=mode)
            self._snapshot = _Snapshot(grown)
        return added

    def search_entities(self, text: str = "", limit: int = 10) -> list[Found]:
        """Entities whose name or label contains ``text``, for type-ahead; see :meth:`NameIndex.search`."""
        return self._snapshot.entities.search(text, limit)

    def search_relations(self, text: str = "", limit: int = 10) -> list[Found]:
        """Relations whose name contains ``text``."""
        return self._snapshot.relations.search(text, limit)

    def about(self) -> dict[str, Any]:
        """The card of dataset and model: names, sizes, settings, validation metrics, calibration; for JSON.

        Where a run lies, and where its data lay, is no one's business: settings that say so are left out.
        """
        predictor = self.predictor
        graph, run = predictor.graph, predictor.run
        entities, facts = self._original_sizes
        config = None if run is None else run.config
        return {
            "dataset": {
                "name": graph.name,
                "num_entities": graph.num_entities,
                "num_relations": graph.num_relations,
                "num_triples": graph.num_triples,
                "splits": {split: len(triples) for split, triples in graph.splits.items()},
                "notes": list(graph.notes),
            },
            "model": {
                "name": type(predictor.model).__name__ if config is None else config.model,
                "scorer": None if config is None else setting_of(config, "scorer"),
                "dim": None if config is None else setting_of(config, "dim"),
                "num_parameters": predictor.model.num_parameters,
                "settings": {} if config is None else _public_settings(config),
            },
            "metrics": self._metrics,
            "calibration": None if predictor.calibration is None else predictor.calibration.to_dict(),
            "added": {
                "num_entities": graph.num_entities - entities,
                "num_facts": len(graph.triples("train")) - facts,
            },
            "allow_writes": self.allow_writes,
        }

    @cached_property
    def _metrics(self) -> dict[str, float]:
        """Of the validation split at the epoch whose weights these are; ``valid_mrr`` alone for an ensemble."""
        run = self.predictor.run
        if run is None:
            return {}
        best = run.sidecar.get("best_epoch")
        record = next((record for record in run.records() if record["epoch"] == best), run.sidecar)
        return {name: value for name, value in record.items() if name.startswith("valid_")}


def _public_settings(config: RunConfig) -> dict[str, Any]:
    """All settings but those that name places on this machine, how it computed, or nothing in such a model."""
    if isinstance(config, EnsembleConfig):
        members = [{"weight": one.weight, "settings": _public_settings(one.settings)} for one in config.members]
        return {"model": config.model, "members": members}
    return config.model_dump(mode="json", exclude={*CIRCUMSTANCES, *config.unused})


class _Snapshot:
    """A predictor with all that readers share filled in, so that no two threads fill it at once, and its names."""

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor
        _ = predictor.calibration, predictor.kinds
        graph = predictor.graph
        for splits in ((), *((split,) for split in graph.splits)):
            graph.queries(*splits)

    @cached_property
    def entities(self) -> NameIndex:
        return NameIndex.of_entities(self.predictor.graph)

    @cached_property
    def relations(self) -> NameIndex:
        return NameIndex.of_relations(self.predictor.graph)
