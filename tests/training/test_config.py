"""Settings of a kind of model that are wrong, or that others leave without effect, are named."""

from __future__ import annotations

import pytest

from refactorgnn.errors import UserError
from refactorgnn.training.config import TrainConfig


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"model": "lookup", "layers": 3},
            "setting 'layers' belongs to models refactor, rgcn, gat, nbfnet and grail: leave it out for lookup",
        ),
        ({"model": "refactor", "batch_size": 3}, "setting 'batch_size' belongs to models lookup, forgetting"),
        ({"model": "refactor", "features": "txt"}, "unknown features 'txt': did you mean 'text'"),
        ({"model": "refactor", "features": "random+random"}, "name the same twice"),
        ({"model": "refactor", "layers": 0}, "setting layers cannot be 0"),
        ({"model": "refactr"}, "unknown model 'refactr': did you mean 'refactor'"),
        ({"model": "refactor", "n_term": "exactly"}, "setting n_term cannot be 'exactly'"),
        ({"model": "refactor", "layers": "inf", "learned_steps": True}, "learned_steps=True needs a finite depth"),
        ({"model": "refactor", "induced": True}, "induced=True needs parts above 1"),
        ({"model": "refactor", "steps_per_epoch": 2}, "steps_per_epoch=2 is not for layer-wise training"),
        ({"model": "refactor", "sample_width": 2}, "sample_width=2 needs a sampler"),
        ({"model": "refactor", "sampler": "saint", "parts": 2}, "parts=2 is not for sub-graphs"),
        ({"model": "refactor", "sampler": "saint", "layers": "inf", "devices": "2"}, "a cache of its own"),
        ({"model": "no-pretrain", "learning_rate": 0.5}, "learning_rate=0.5 does nothing without training"),
        ({"model": "refactor", "text_encoder": "x"}, "text_encoder is 'x', but features 'random' read no texts"),
        ({"log": "csv+excel"}, "unknown log 'excel'"),
        ({"log": "csv+csv"}, "log 'csv.csv' names the same twice"),
        ({"devices": "two"}, "setting devices"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        TrainConfig.from_dict({"dataset": "countries", **settings})
