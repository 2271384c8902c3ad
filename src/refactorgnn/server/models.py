"""What requests and answers look like. Requests are strict: no ``"10"`` for 10, no field that nothing reads."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from refactorgnn.predict.predictor import Question

# Longer than any sensible IRI; a limit keeps the search for similar names short.
MOST_CHARACTERS = 1000
Text = Annotated[str, StringConstraints(min_length=1, max_length=MOST_CHARACTERS)]
Name = Annotated[Text | int, Field(description="Name or label; or an id.")]
Seconds = Annotated[float, Field(ge=0, description="How long it took.")]


class _Request(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class AskedTriple(_Request):
    """A triple with one unknown, which is left out or null."""

    head: Name | None = None
    relation: Name | None = None
    tail: Name | None = None

    @model_validator(mode="after")
    def _one_unknown(self) -> AskedTriple:
        self.question()
        return self

    def question(self) -> Question:
        """As a predictor asks it; a ``UserError`` if there is not just one unknown."""
        return Question(self.head, self.relation, self.tail)


class _HowToAnswer(_Request):
    k: Annotated[int, Field(ge=1, description="The number of answers.")] = 10
    include_known: Annotated[bool, Field(description="Also give answers that the graph already has.")] = False
    typed: Annotated[bool, Field(description="Only answers seen in that place of the relation in training.")] = False


class PredictRequest(_HowToAnswer, AskedTriple):
    """One question: two of head, relation and tail."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"head": "France", "relation": "borders", "k": 5, "include_known": True}]}
    )


class BatchRequest(_HowToAnswer):
    """Many questions."""

    questions: Annotated[list[AskedTriple], Field(min_length=1)]

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "questions": [
                        {"head": "France", "relation": "borders"},
                        {"relation": "in_region", "tail": "Eastern Europe"},
                    ],
                    "k": 3,
                }
            ]
        }
    )


class ExplainRequest(_Request):
    """A whole triple."""

    head: Name
    relation: Name
    tail: Name
    depth: Annotated[int, Field(ge=1, description="How many layers to split, from the last one back.")] = 1
    num_counterfactuals: Annotated[
        int, Field(ge=0, description="How many facts to take away, one at a time, running the model again.")
    ] = 0

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"head": "France", "relation": "borders", "tail": "Spain"}]}
    )


class SearchRequest(BaseModel):
    """What is typed of a name; a query string, so numbers come as text."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: Annotated[
        str, Field(max_length=200, description="Any part of a name or label; case and accents do not count.")
    ] = ""
    limit: Annotated[int, Field(ge=1, description="The most names to give.")] = 10


class EntityText(_Request):
    """What is said of a new entity."""

    label: Text
    description: Annotated[str, StringConstraints(max_length=100_000)] = ""


class AddRequest(_Request):
    """Facts, and texts of new entities by name; at least one of them."""

    facts: Annotated[
        list[Annotated[list[Text], Field(min_length=3, max_length=3)]],
        Field(description="Rows of head, relation and tail; entities old or new, known relations only."),
    ] = []
    texts: Annotated[dict[Text, EntityText], Field(description="Label and description of new entities.")] = {}
    mode: Annotated[
        Literal["exact", "local"],
        Field(description="Run all layers again, or compute the new entities only, the others staying as they are."),
    ] = "exact"

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "facts": [["Atlantis", "borders", "Portugal"]],
                    "texts": {"Atlantis": {"label": "Atlantis", "description": "An island."}},
                    "mode": "exact",
                }
            ]
        }
    )


class AnswerOut(BaseModel):
    """One answer."""

    entity: Annotated[str, Field(description="Its name in the data; a relation's where the relation was asked for.")]
    label: str
    score: Annotated[float, Field(description="Comparable among the answers to one question.")]
    known: Annotated[bool, Field(description="Whether the graph already says so.")]
    split: Annotated[str | None, Field(description="The split in which the graph says so.")]
    probability: Annotated[float | None, Field(description="How likely it is to be true, if that can be told.")]


class Answers(BaseModel):
    """The best answers to a question, the best first."""

    answers: list[AnswerOut]


class BatchAnswers(BaseModel):
    """The answers to each question, in the order of the questions."""

    results: list[Answers]


class TermOut(BaseModel):
    """One part of a score."""

    kind: str
    layers_back: Annotated[
        int, Field(description="In which layer: 1 is the last; 0 where the kind is a state or a link.")
    ]
    contribution: float
    fact: tuple[str, str, str] | None


class CounterfactualOut(BaseModel):
    """What becomes of the score when a fact is taken away and all layers run again."""

    fact: tuple[str, str, str]
    score: float
    tail_rank: float
    head_rank: float


class RuleReasonOut(BaseModel):
    """A rule that says an answer."""

    rule: Annotated[str, Field(description="The rule in words; X, A, B and Y are variables.")]
    confidence: float
    support: Annotated[int, Field(description="How often it was right in the training graph.")]
    groundings: Annotated[int, Field(description="How often its body held there.")]
    path: Annotated[list[tuple[str, str, str]], Field(description="Facts by which its body holds here.")]


class ExplanationOut(BaseModel):
    """Why a triple has its score."""

    triple: tuple[str, str, str]
    score: float
    tail_rank: float
    head_rank: float
    by_tail: Annotated[list[TermOut], Field(description="The score as a sum over what made the tail's state.")]
    by_head: Annotated[list[TermOut], Field(description="The score as a sum over what made the head's state.")]
    counterfactuals: list[CounterfactualOut]
    num_facts: Annotated[int, Field(description="Facts around head and tail.")]
    note: Annotated[str, Field(description="What could not be done with this model.")]
    rules: Annotated[list[RuleReasonOut], Field(description="Of a model of rules: those that say the tail.")]


class AddedOut(BaseModel):
    """What was added."""

    entities: Annotated[list[str], Field(description="The names of the new entities.")]
    num_facts: Annotated[int, Field(description="How many facts are new.")]
    num_known: Annotated[int, Field(description="How many the graph had already, or were given twice.")]
    seconds: Seconds


class FoundOut(BaseModel):
    """An entity or a relation."""

    name: str
    label: str
    description: str
    num_facts: Annotated[int, Field(description="In how many facts of the train split it is.")]


class Search(BaseModel):
    """Names that match, the best first."""

    found: list[FoundOut]


class Dataset(BaseModel):
    """The graph that is asked about."""

    name: str
    num_entities: int
    num_relations: int
    num_triples: int
    splits: dict[str, int]
    notes: list[str]


class Model(BaseModel):
    """The model that answers."""

    name: str
    scorer: str | None
    dim: int | None
    num_parameters: int
    settings: dict[str, Any]


class Additions(BaseModel):
    """What was added since the start."""

    num_entities: int
    num_facts: int


class About(BaseModel):
    """The card of dataset and model."""

    dataset: Dataset
    model: Model
    metrics: Annotated[dict[str, float], Field(description="Of the validation split.")]
    calibration: Annotated[dict[str, Any] | None, Field(description="How scores become probabilities, and how well.")]
    added: Additions
    allow_writes: bool


class Health(BaseModel):
    """That the server can answer: the model is loaded before the port is opened."""

    status: Literal["ready"]
    version: str
    num_entities: int


class Problem(BaseModel):
    """What is wrong, in one sentence."""

    detail: str
