"""Wrong answers to learn from."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from refactorgnn.data.queries import QueryIndex
from refactorgnn.evaluation.sampling import draw_without


def strict_negatives(known: QueryIndex, questions: Tensor, count: int) -> Tensor:
    """Distinct entities, drawn evenly among those that are no known answers; shape ``(num_questions, count)``.

    −1 stands where a question has fewer. The draw is seeded by torch's default generator, as all of a training is.

    Args:
        known: The known answers, on the CPU.
        questions: Shape ``(num_questions, 2 or more)``: subject and relation first.
        count: How many for each question.
    """
    seed = int(torch.randint(2**62, ()))
    excluded = known.distinct_answers.take_rows(known.find(questions[:, 0], questions[:, 1]))
    return draw_without(excluded, count, np.random.default_rng(seed))
