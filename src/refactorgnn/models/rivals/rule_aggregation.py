"""From the rules that fire to scores: max-plus and noisy-or."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Aggregation = Literal["max", "noisy-or"]
AGGREGATIONS: tuple[Aggregation, ...] = ("max", "noisy-or")
# Bits of a word: one less than those of a positive int64, so that sums stay positive.
_WORD_BITS = 62
# How far above the confidence of its best rule an answer may come by its other rules.
_MOST_ROOM = 1e-3


@dataclass(frozen=True)
class Fired:
    """Rules that say an answer, each once: the question's place, the rule, the entity."""

    questions: Tensor
    rules: Tensor
    answers: Tensor

    @classmethod
    def joined(cls, parts: Sequence[Fired]) -> Fired:
        """All of several parts."""
        return cls(
            torch.cat([part.questions for part in parts]),
            torch.cat([part.rules for part in parts]),
            torch.cat([part.answers for part in parts]),
        )


def noisy_or(fired: Fired, confidences: Tensor, num_questions: int, num_entities: int) -> Tensor:
    """``−log Π (1 − confidence)`` over the rules that fire, as if they were independent; 0 where none does.

    It orders like the probability ``1 − Π (1 − confidence)`` itself, which many rules would round to 1.

    Returns:
        Shape ``(num_questions, num_entities)``, float64.
    """
    scores = torch.zeros(num_questions * num_entities, dtype=torch.float64, device=confidences.device)
    doubts = -torch.log1p(-confidences)
    scores.index_add_(0, fired.questions * num_entities + fired.answers, doubts[fired.rules])
    return scores.view(num_questions, num_entities)


class MaxPlus:
    """Answers ordered by their best rule, those that tie by their second best, and so on.

    An answer's rules are digits of a number, one for each confidence that the head has, the highest first: how many
    rules of that confidence fire. Such numbers order as max-plus does. They are held in words of 62 bits and compared
    word by word; what comes out is the confidence of the best rule plus a little for the place among those that share
    it: less than what lacks to the next higher confidence, and than 0.001.

    Args:
        heads: The head of each rule.
        confidences: Their confidences, float64.
    """

    def __init__(self, heads: Tensor, confidences: Tensor) -> None:
        order = torch.argsort(confidences, descending=True, stable=True)
        order = order[torch.argsort(heads[order], stable=True)]
        groups = torch.column_stack([heads[order].double(), -confidences[order]])
        _, group_of, counts = torch.unique_consecutive(groups, dim=0, return_inverse=True, return_counts=True)
        firsts = counts.cumsum(0) - counts
        words, shifts = _digits(heads[order][firsts].tolist(), counts.tolist())
        device = heads.device
        self.confidences = confidences
        self.words = torch.empty_like(heads)
        self.words[order] = torch.tensor(words, dtype=torch.int64, device=device)[group_of]
        self.digits = torch.empty_like(heads)
        self.digits[order] = (1 << torch.tensor(shifts, dtype=torch.int64, device=device))[group_of]
        self.rooms = torch.empty_like(confidences)
        self.rooms[order] = _rooms(heads[order][firsts], confidences[order][firsts])[group_of]
        self.num_words = max(words, default=-1) + 1

    def __call__(self, fired: Fired, num_questions: int, num_entities: int) -> Tensor:
        """Scores of shape ``(num_questions, num_entities)``, float64; 0 where no rule fires."""
        scores = torch.zeros(num_questions * num_entities, dtype=torch.float64, device=self.confidences.device)
        pairs, pair_of = torch.unique(fired.questions * num_entities + fired.answers, return_inverse=True)
        best, room = self._best(pair_of, fired.rules, len(pairs))
        order, is_higher = self._sorted(pairs // num_entities, pair_of, fired.rules)
        # Among those of one question that share their best confidence: how many different ones are below.
        question, best_there = (pairs // num_entities)[order], best[order]
        starts = torch.ones_like(question, dtype=torch.bool)
        starts[1:] = (question[1:] != question[:-1]) | (best_there[1:] != best_there[:-1])
        group = starts.long().cumsum(0) - 1
        steps = is_higher.long().cumsum(0)
        below = steps - steps[starts][group]
        numbers = torch.zeros(int(starts.sum()), dtype=torch.int64, device=pairs.device)
        numbers.scatter_reduce_(0, group, below, "amax")
        scores[pairs[order]] = best_there + room[order] * below / (numbers[group] + 1)
        return scores.view(num_questions, num_entities)

    def _best(self, pair_of: Tensor, rules: Tensor, num_pairs: int) -> tuple[Tensor, Tensor]:
        """The best confidence of each pair, and how much may be added to it."""
        best = torch.zeros(num_pairs, dtype=torch.float64, device=rules.device)
        best.scatter_reduce_(0, pair_of, self.confidences[rules], "amax")
        room = torch.zeros_like(best)
        is_best = self.confidences[rules] == best[pair_of]
        room[pair_of[is_best]] = self.rooms[rules[is_best]]
        return best, room

    def _sorted(self, questions: Tensor, pair_of: Tensor, rules: Tensor) -> tuple[Tensor, Tensor]:
        """The pairs from the lowest number to the highest, question by question, and where a number is a higher one."""
        words, by_word = torch.sort(self.words[rules], stable=True)
        rules, pair_of = rules[by_word], pair_of[by_word]
        ends = torch.bincount(words, minlength=self.num_words).cumsum(0).tolist()
        numbers = [questions]
        for start, end in zip([0, *ends], ends, strict=False):
            if end > start:
                number = torch.zeros_like(questions)
                numbers.append(number.index_add_(0, pair_of[start:end], self.digits[rules[start:end]]))
        order = torch.arange(len(questions), device=questions.device)
        for number in reversed(numbers):  # stable sorts, the most significant last
            order = _sorted_by(number, order)
        is_higher = torch.zeros_like(questions, dtype=torch.bool)
        for number in numbers:
            there = number[order]
            is_higher[1:] |= there[1:] != there[:-1]
        return order, is_higher


def _sorted_by(number: Tensor, order: Tensor) -> Tensor:
    """``order``, sorted stably by numbers that are not negative: most are 0 and only have to be put first."""
    there = number[order]
    is_zero = there == 0
    rest = order[~is_zero]
    return torch.cat([order[is_zero], rest[torch.argsort(there[~is_zero], stable=True)]])


def _digits(heads: list[int], counts: list[int]) -> tuple[list[int], list[int]]:
    """The word and the place in it of each digit: most significant first, none across two words, anew for each head."""
    words, shifts = [], []
    last_head, word, left = None, 0, _WORD_BITS
    for head, count in zip(heads, counts, strict=True):
        if head != last_head:
            last_head, word, left = head, 0, _WORD_BITS
        bits = count.bit_length()
        if bits > left:
            word, left = word + 1, _WORD_BITS
        left -= bits
        words.append(word)
        shifts.append(left)
    return words, shifts


def _rooms(heads: Tensor, confidences: Tensor) -> Tensor:
    """What lacks from each confidence, sorted from high to low by head, to the next higher one of its head."""
    rooms = torch.full_like(confidences, _MOST_ROOM)
    gaps = confidences[:-1] - confidences[1:]
    rooms[1:] = torch.where(heads[1:] == heads[:-1], gaps.clamp(max=_MOST_ROOM), _MOST_ROOM)
    return rooms
