"""The untrained model that settings describe."""

from __future__ import annotations

from typing import Any

import torch

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.errors import UserError
from refactorgnn.models.base import LinkPredictor
from refactorgnn.models.encoder import StateEncoder
from refactorgnn.models.ensemble import Ensemble
from refactorgnn.models.features import Features, make_features
from refactorgnn.models.forgetting import ForgettingLookup
from refactorgnn.models.gnn import GAT, RGCN, NoPretrain
from refactorgnn.models.infinite import InfiniteReFactorGNN
from refactorgnn.models.lookup import Lookup
from refactorgnn.models.refactor import ReFactorGNN, seeded_layer
from refactorgnn.models.rivals.ppr import PersonalisedPageRank
from refactorgnn.models.rivals.rulen import RuleN
from refactorgnn.models.unlinked import Unlinked
from refactorgnn.training.config import (
    EncoderConfig,
    FeatureConfig,
    ForgettingConfig,
    GATConfig,
    LookupConfig,
    ReFactorConfig,
    RGCNConfig,
)
from refactorgnn.training.ensemble_config import EnsembleConfig, RunConfig
from refactorgnn.training.rivals.differentiable_rules import DRUMConfig, NeuralLPConfig
from refactorgnn.training.rivals.grail import GraILConfig
from refactorgnn.training.rivals.nbfnet import NBFNetConfig
from refactorgnn.training.rivals.ppr import PPRConfig
from refactorgnn.training.rivals.rulen import RuleNConfig
from refactorgnn.training.rivals.unlinked import UnlinkedConfig

# In torch's words for sizes that it cannot allocate or count.
_TOO_LARGE = ("allocate", "overflow")


def build_model(config: RunConfig, graph: KnowledgeGraph) -> LinkPredictor:
    """The model with its initial weights, for the entities and relations of ``graph``."""
    if isinstance(config, EnsembleConfig):
        return Ensemble([build_model(member.settings, graph) for member in config.members], config.weights)
    try:
        if isinstance(config, LookupConfig):
            return _lookup(config, graph)
        if isinstance(config, ForgettingConfig):
            return _forgetting(config, graph)
        if isinstance(config, ReFactorConfig):
            return _refactor(config, graph)
        if isinstance(config, EncoderConfig):
            return _baseline(config, graph)
        if isinstance(config, RuleNConfig):
            return _rulen(config, graph)
        if isinstance(config, PPRConfig):
            return _ppr(config, graph)
        if isinstance(config, UnlinkedConfig):
            return Unlinked(graph.relations)
        if isinstance(config, NeuralLPConfig | DRUMConfig | NBFNetConfig | GraILConfig):
            return config.build(graph)
    except (RuntimeError, TypeError) as error:
        if not any(word in str(error).lower() for word in _TOO_LARGE):
            raise
        raise UserError(
            f"dim={config.dim} is too large for memory with {graph.num_entities:,} entities and "
            f"{graph.num_relations:,} relations: choose a smaller one."
        ) from error
    raise TypeError(f"no model is known for {type(config).__name__}")


def _lookup(config: LookupConfig, graph: KnowledgeGraph) -> Lookup:
    return Lookup(
        graph.entities,
        graph.relations,
        config.scorer,
        config.dim,
        init_scale=config.init_scale,
        dropout=config.dropout,
        n3=config.n3,
        relation_loss=config.relation_loss,
        seed=config.seed,
    )


def _forgetting(config: ForgettingConfig, graph: KnowledgeGraph) -> ForgettingLookup:
    return ForgettingLookup(
        graph.relations,
        _features(config, graph),
        config.scorer,
        config.dim,
        num_steps=config.forget_every,
        batch_size=config.batch_size,
        optimizer=config.optimizer,
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        dropout=config.dropout,
        n3=config.n3,
        init_scale=config.init_scale,
        seed=config.seed,
        memory_budget=config.memory_budget,
    )


def _refactor(config: ReFactorConfig, graph: KnowledgeGraph) -> ReFactorGNN | InfiniteReFactorGNN:
    options: dict[str, Any] = {
        "alpha": config.alpha,
        "n3": config.n3,
        "n_term": config.n_term,
        "n3_weighting": config.n3_weighting,
        "num_samples": config.samples or None,
        "init_scale": config.init_scale,
        "seed": config.seed,
        "memory_budget": config.memory_budget,
    }
    features = _features(config, graph)
    if config.layers == "inf":
        options |= {"optimizer": config.layer_optimizer, "dropout": config.layer_dropout}
        options |= {"relation_loss": config.relation_loss}
        layer = seeded_layer(graph.relations, config.scorer, config.dim, **options)
        infinite = InfiniteReFactorGNN(graph.entities, graph.relations, features, layer, induced=config.induced)
        with torch.no_grad():
            infinite.start(features(graph, graph.queries("train")))
        return infinite
    return ReFactorGNN(
        graph.relations,
        features,
        config.scorer,
        config.dim,
        num_layers=config.layers,
        layer_optimizer=config.layer_optimizer,
        num_draws=config.draws,
        learned_steps=config.learned_steps,
        num_parts=config.parts,
        layer_dropout=config.layer_dropout,
        induced=config.induced,
        links=config.links,
        **options,
    )


def _baseline(config: EncoderConfig, graph: KnowledgeGraph) -> StateEncoder:
    known = graph.relations, _features(config, graph), config.scorer, config.dim
    shared: dict[str, Any] = {"num_draws": config.draws, "init_scale": config.init_scale, "seed": config.seed}
    if isinstance(config, RGCNConfig):
        return RGCN(*known, num_layers=config.layers, num_bases=config.bases, dropout=config.dropout, **shared)
    if isinstance(config, GATConfig):
        return GAT(
            *known,
            num_layers=config.layers,
            heads=config.heads,
            combine=config.combine,
            dropout=config.dropout,
            **shared,
        )
    return NoPretrain(*known, **shared)


def _rulen(config: RuleNConfig, graph: KnowledgeGraph) -> RuleN:
    return RuleN(
        graph.entities,
        graph.relations,
        rules_per_relation=config.rules_per_relation,
        constant_rules_per_relation=config.constant_rules_per_relation,
        laplace=config.laplace,
        aggregation=config.aggregation,
        memory_budget=config.memory_budget,
    )


def _ppr(config: PPRConfig, graph: KnowledgeGraph) -> PersonalisedPageRank:
    return PersonalisedPageRank(
        graph.relations,
        restart=config.restart,
        tolerance=config.tolerance,
        relation_range=config.relation_range,
        neighbours=config.neighbours,
        memory_budget=config.memory_budget,
    )


def _features(config: FeatureConfig, graph: KnowledgeGraph) -> Features:
    return make_features(
        config.features,
        config.dim,
        graph,
        encoder=config.text_encoder or None,
        scale=config.feature_scale,
        seed=config.seed,
    )
