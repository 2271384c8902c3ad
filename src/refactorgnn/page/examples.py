"""Questions to begin with, for somebody who does not know the graph."""

from __future__ import annotations

import torch

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.page.address import Asked

_MOST_EXAMPLES = 5


def example_questions(graph: KnowledgeGraph) -> list[tuple[str, str]]:
    """A text and an address for each: of the commonest relations, the held-out fact whose head is known best."""
    held_out = next(graph.triples(s) for s in ("valid", "test", "train") if s in graph.splits and len(graph.triples(s)))
    ends = graph.triples("train")[:, [0, 2]].flatten()
    num_facts = torch.bincount(ends, minlength=graph.num_entities)
    counts = torch.bincount(held_out[:, 1], minlength=graph.num_relations)
    examples = []
    for relation in torch.argsort(counts, descending=True, stable=True)[:_MOST_EXAMPLES].tolist():
        heads = held_out[held_out[:, 1] == relation, 0]
        if len(heads):
            head, name = int(heads[num_facts[heads].argmax()]), graph.relations[relation]
            address = Asked(graph.entities[head], name, None).address()
            examples.append((f"{graph.label(head)} — {name} — ?", address))
    return examples
