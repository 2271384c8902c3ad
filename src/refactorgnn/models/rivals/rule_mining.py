"""Mining rules: path rules sampled between the ends of facts, rules with constants counted.

Bodies that may be good are drawn (Meilicke et al., 2018): for some facts ``r(x, y)`` of each relation, random paths
from ``x`` to ``y``. Their confidences are then counted, over all groundings or those of a sample of first entities:
``|body and head| / (|body| + laplace)``, each pair ``(x, y)`` once however many paths join it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from refactorgnn.models.rivals.facts import FactIndex, expanded, found, pieces
from refactorgnn.models.rivals.rule_paths import MAX_LENGTH, BodyTrie, distinct_ends, simple_paths

# Paths that are drawn at a time.
_MOST_DRAWS = 2**20


@dataclass(frozen=True)
class MiningOptions:
    """How to mine.

    Args:
        max_length: The most steps of a path.
        facts_per_relation: The most facts of a relation between whose ends paths are drawn.
        paths_per_fact: How many paths of each length are drawn for a fact.
        body_samples: The most first entities, for each first relation of a body, whose groundings are counted.
        min_support: The fewest facts that a rule must predict rightly, and that drawn paths must lead to it.
    """

    max_length: int = 3
    facts_per_relation: int = 500
    paths_per_fact: int = 100
    body_samples: int = 1000
    min_support: int = 2


@dataclass(frozen=True)
class PathRules:
    """Path rules ``heads[i](x, y) ← bodies[i]`` and what was counted of them.

    Args:
        heads: Relations, shape ``(num_rules,)``; never reciprocals, for ``r⁻¹`` has the same rules, read backwards.
        bodies: Relations step by step, filled up with −1; shape ``(num_rules, MAX_LENGTH)``.
        support: How many of the pairs that ground the body are facts of the head.
        groundings: How many pairs ground the body.
    """

    heads: Tensor
    bodies: Tensor
    support: Tensor
    groundings: Tensor

    def take(self, which: Tensor) -> PathRules:
        """Some of the rules."""
        return PathRules(self.heads[which], self.bodies[which], self.support[which], self.groundings[which])


def mine_paths(facts: FactIndex, options: MiningOptions, generator: torch.Generator) -> tuple[PathRules, float]:
    """Path rules of each relation that is no reciprocal, and the share of facts looked at that have a drawn path."""
    heads, bodies, coverage = _drawn_bodies(facts, options, generator)
    counted = count_paths(facts, heads, bodies, options.body_samples, generator)
    return counted.take(counted.support >= options.min_support), coverage


def _drawn_bodies(facts: FactIndex, options: MiningOptions, generator: torch.Generator) -> tuple[Tensor, Tensor, float]:
    """Heads and bodies that paths between the ends of enough facts have, and the share of facts with a path."""
    chosen = _sampled_facts(facts, options.facts_per_relation, generator)
    x, r, y = facts.subjects[chosen], facts.relations[chosen], facts.objects[chosen]
    seen = [chosen.new_empty(0, 1 + MAX_LENGTH)]
    for part in torch.arange(len(chosen), device=facts.device).split(max(1, _MOST_DRAWS // options.paths_per_fact)):
        for number, body in _paths_between(facts, x[part], y[part], options, generator):
            is_rule = (body[:, 0] != r[part[number]]) | (body[:, 1] >= 0)  # a fact is no reason for itself
            seen.append(torch.unique(torch.column_stack([part[number], body])[is_rule], dim=0))
    drawn = torch.unique(torch.cat(seen), dim=0)  # a body once for each fact
    coverage = len(torch.unique(drawn[:, 0])) / max(1, len(chosen))
    rules, counts = torch.unique(torch.column_stack([r[drawn[:, 0]], drawn[:, 1:]]), dim=0, return_counts=True)
    rules = rules[counts >= options.min_support]
    return rules[:, 0], rules[:, 1:], coverage


def _sampled_facts(facts: FactIndex, most: int, generator: torch.Generator) -> Tensor:
    """At most so many facts of each relation, reciprocals left out."""
    direct = torch.nonzero(facts.relations < facts.num_relations // 2).flatten()
    return direct[sampled_by_group(facts.relations[direct], most, generator)]


def sampled_by_group(groups: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Places of at most ``most`` random members of each group, in ascending order."""
    shuffled = torch.randperm(len(groups), generator=generator).to(groups.device)
    order = shuffled[torch.argsort(groups[shuffled], stable=True)]
    counts = torch.unique_consecutive(groups[order], return_counts=True)[1]
    return torch.sort(order[expanded(counts)[1] < most]).values


def _paths_between(
    facts: FactIndex, x: Tensor, y: Tensor, options: MiningOptions, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Random simple paths from ``x[i]`` to ``y[i]``: ``i``, and the bodies, of each length in turn."""
    places, relations = facts.between(x, y)
    yield places, _bodies(relations)
    if options.max_length == 1:
        return
    draws = torch.arange(len(x), device=x.device).repeat_interleave(options.paths_per_fact)
    first, z1 = facts.drawn(x[draws], generator)
    away = z1 != y[draws]
    places, second = facts.between(z1[away], y[draws[away]])
    yield draws[away][places], _bodies(first[away][places], second)
    if options.max_length == 2:
        return
    # The last step is drawn backwards from y, so that both ends are met and only the middle is looked up.
    last, z2 = facts.drawn(y[draws], generator)
    apart = away & (z2 != x[draws]) & (z1 != z2)
    places, middle = facts.between(z1[apart], z2[apart])
    yield (
        draws[apart][places],
        _bodies(first[apart][places], middle, (last[apart][places] + facts.num_relations // 2) % facts.num_relations),
    )


def _bodies(*steps: Tensor) -> Tensor:
    """Relations step by step, filled up with −1."""
    missing = [torch.full_like(steps[0], -1)] * (MAX_LENGTH - len(steps))
    return torch.column_stack([*steps, *missing])


def count_paths(
    facts: FactIndex, heads: Tensor, bodies: Tensor, body_samples: int, generator: torch.Generator
) -> PathRules:
    """Count the groundings of bodies, and of these the facts of the heads.

    Args:
        facts: The facts.
        heads: Shape ``(num_rules,)``.
        bodies: Shape ``(num_rules, MAX_LENGTH)``.
        body_samples: The most first entities for each first relation.
        generator: Draws them.
    """
    distinct, body_of = torch.unique(bodies, dim=0, return_inverse=True)
    half = facts.num_relations // 2
    rule_keys, order = torch.sort(body_of * half + heads)
    support, groundings = (
        torch.zeros_like(rule_keys),
        torch.zeros(len(distinct), dtype=torch.int64, device=facts.device),
    )
    trie = BodyTrie(distinct[:, 0], distinct, facts.num_relations)
    query_starts = facts.query_keys // facts.num_relations
    begun = torch.isin(facts.query_relations, distinct[:, 0])
    first, starts = facts.query_relations[begun], query_starts[begun]
    kept = sampled_by_group(first, body_samples, generator)
    first, starts = first[kept], starts[kept]
    # Groundings of one start are together in a part, so that none is counted twice.
    for part in pieces(facts.degrees[starts] ** 2, facts.most_paths):
        paths = simple_paths(facts, trie, first[part], starts[part])
        owners, body, ends = distinct_ends(paths, len(distinct), facts)
        groundings += torch.bincount(body, minlength=len(distinct))
        places, relations = facts.between(starts[part][owners], ends)
        direct = relations < half
        rules = found(rule_keys, body[places[direct]] * half + relations[direct])[1]
        support += torch.bincount(rules, minlength=len(rule_keys))
    unsorted = torch.empty_like(support)
    unsorted[order] = support
    return PathRules(heads, bodies, unsorted, groundings[body_of])


@dataclass(frozen=True)
class ConstantRules:
    """Rules ``heads[i](x, c) ← body(x, c')`` with ``c'`` a constant or any entity, so long as body and head differ.

    Args:
        heads: Relations, reciprocals included; shape ``(num_rules,)``.
        terms: ``c``, the relation of the body, and ``c'`` (−1: any entity); shape ``(num_rules, 3)``.
        support: How many ``x`` the rule is right of.
        groundings: How many ``x`` ground the body.
    """

    heads: Tensor
    terms: Tensor
    support: Tensor
    groundings: Tensor


def mine_constants(facts: FactIndex, min_support: int) -> ConstantRules:
    """Every rule with constants that is right of ``min_support`` entities, counted over all facts."""
    # What can be said of x alone: its facts r(x, c), and its relations r(x, ·).
    said = facts.relations * (facts.num_entities + 1) + facts.objects + 1
    any_said = facts.query_relations * (facts.num_entities + 1)
    subjects = torch.cat([facts.subjects, facts.query_keys // facts.num_relations])
    statements, numbers, sizes = torch.unique(torch.cat([said, any_said]), return_inverse=True, return_counts=True)
    enough = sizes[numbers] >= min_support
    is_head = torch.cat([torch.ones_like(said), torch.zeros_like(any_said)]).bool() & enough
    by_subject = torch.argsort(subjects[enough], stable=True)
    bodies, body_subjects = numbers[enough][by_subject], subjects[enough][by_subject]
    num_bodies = torch.bincount(body_subjects, minlength=facts.num_entities)
    first_body = num_bodies.cumsum(0) - num_bodies
    by_head = torch.argsort(numbers[is_head], stable=True)
    heads, head_subjects = numbers[is_head][by_head], subjects[is_head][by_head]
    found_keys, found_counts = [heads[:0]], [heads[:0]]
    for part in _whole_groups(heads, num_bodies[head_subjects], facts.most_paths):
        places, offsets = expanded(num_bodies[head_subjects[part]])
        body = bodies[first_body[head_subjects[part]][places] + offsets]
        keys, counts = torch.unique(heads[part][places] * len(statements) + body, return_counts=True)
        enough = counts >= min_support
        found_keys.append(keys[enough])
        found_counts.append(counts[enough])
    keys, counts = torch.cat(found_keys), torch.cat(found_counts)
    return _constant_rules(facts, statements, sizes, keys, counts, min_support)


def _whole_groups(groups: Tensor, sizes: Tensor, most: int) -> Iterator[slice]:
    """Slices that cut no group of the sorted ``groups``, each of the size ``most`` or of one group."""
    numbers, lengths = torch.unique_consecutive(groups, return_counts=True)
    group_sizes = torch.zeros(len(numbers), dtype=torch.int64, device=groups.device)
    group_sizes.index_add_(0, torch.repeat_interleave(lengths), sizes)
    ends = lengths.cumsum(0)
    for piece in pieces(group_sizes, most):
        yield slice(int(ends[piece.start] - lengths[piece.start]), int(ends[piece.stop - 1]))


def _constant_rules(
    facts: FactIndex, statements: Tensor, sizes: Tensor, keys: Tensor, support: Tensor, min_support: int
) -> ConstantRules:
    """The rules that counted pairs of statements are, without those in which a fact is its own reason."""
    width = facts.num_entities + 1
    head, body = statements[keys // len(statements)], statements[keys % len(statements)]
    groundings = sizes[keys % len(statements)]
    relation, constant = head // width, head % width - 1
    body_relation, body_constant = body // width, body % width - 1
    # r(x, c) ← r(x, z) needs another z than c: x with c as its only one neither support nor ground it.
    same = (relation == body_relation) & (body_constant < 0)
    alone = _alone(facts, head[same])
    support, groundings = support.clone(), groundings.clone()
    support[same] -= alone
    groundings[same] -= alone
    kept = (head != body) & (support >= min_support)
    terms = torch.column_stack([constant, body_relation, body_constant])
    return ConstantRules(relation[kept], terms[kept], support[kept], groundings[kept])


def _alone(facts: FactIndex, statements: Tensor) -> Tensor:
    """For each statement ``r(·, c)``, how many ``x`` have ``c`` as their only object of ``r``."""
    only = torch.nonzero(facts.query_counts == 1).flatten()
    objects = facts.objects[facts.query_starts[only]]
    keys, counts = torch.unique(
        facts.query_relations[only] * (facts.num_entities + 1) + objects + 1, return_counts=True
    )
    is_there, places = found(keys, statements)
    numbers = torch.zeros_like(statements)
    numbers[is_there] = counts[places]
    return numbers
