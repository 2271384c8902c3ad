"""The datasets that are known by name: what they are, where they come from, and how to get hold of them.

The facts are data: ``benchmarks.json`` holds the public benchmarks (addresses, checksums, counts), the
folders under ``bundled/`` hold small graphs that come with the package and need no download.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rich.progress import Progress

from refactorgnn.data.content import read_bytes
from refactorgnn.data.download import download_bars, fetch
from refactorgnn.errors import FileError, UserError, unknown_name
from refactorgnn.storage import write_error

DATA_VARIABLE = "REFACTORGNN_DATA"
CACHE_VARIABLE = "REFACTORGNN_CACHE"
SPLIT_NAMES = ("train", "valid", "test")

_HERE = Path(__file__).parent
_BUNDLED_SOURCE = "GeoNames (CC BY 4.0), Unicode CLDR and UN M49, joined by scripts/build_countries.py"
_BUNDLED = {
    "countries": "The countries of the world: borders, regions, cities, languages, currencies; with texts",
    "countries_part": "Some of the countries, for training without having seen the others",
    "countries_part_ind": "The other countries, unseen when training on countries_part",
}


@dataclass(frozen=True)
class Counts:
    """The size of a dataset; entities and relations over all its splits."""

    num_entities: int
    num_relations: int
    num_train: int
    num_valid: int
    num_test: int


@dataclass(frozen=True)
class RemoteFile:
    """A file's checksum, and its address unless it comes inside an archive."""

    sha256: str
    url: str | None = None


@dataclass(frozen=True)
class DatasetSpec:
    """A dataset known by name.

    Attributes:
        name: Its name, which is also that of its folder.
        description: What it is, in a line.
        source: Whom to cite.
        counts: Its size.
        files: The file of each split; empty for a bundled dataset.
        archive: The archive the files come in, if they do.
        unseen: The name of its partner with other entities, if it is the training half of an inductive pair.
        bundled: Whether it comes with the package.
        texts: The name of the file of entity texts that a data root may keep for it, if there is one; several
            datasets share it. A bundled dataset has its texts in its own folder.
    """

    name: str
    description: str
    source: str
    counts: Counts
    files: Mapping[str, RemoteFile]
    archive: RemoteFile | None = None
    unseen: str | None = None
    bundled: bool = False
    texts: str | None = None


def _counts(entry: Mapping[str, int]) -> Counts:
    return Counts(*(entry[key] for key in ("entities", "relations", *SPLIT_NAMES)))


def _benchmark(name: str, entry: Mapping[str, Any]) -> DatasetSpec:
    return DatasetSpec(
        name=name,
        description=entry["description"],
        source=entry["source"],
        counts=_counts(entry["counts"]),
        files=MappingProxyType({split: RemoteFile(**file) for split, file in entry["files"].items()}),
        archive=RemoteFile(**entry["archive"]) if "archive" in entry else None,
        unseen=entry["unseen"],
        texts=entry.get("texts"),
    )


def _load_specs() -> dict[str, DatasetSpec]:
    """Read the table; a bundled folder that was left out of an installation is left out of the table too."""
    specs = {}
    for name, description in _BUNDLED.items():
        if (folder := bundled_folder(name)) is not None:
            counts = _counts(json.loads((folder / "counts.json").read_text(encoding="utf-8")))
            unseen = f"{name}_ind" if f"{name}_ind" in _BUNDLED else None
            specs[name] = DatasetSpec(name, description, _BUNDLED_SOURCE, counts, {}, unseen=unseen, bundled=True)
    benchmarks = json.loads((_HERE / "benchmarks.json").read_text(encoding="utf-8"))
    return specs | {name: _benchmark(name, entry) for name, entry in benchmarks.items()}


def bundled_folder(name: str) -> Path | None:
    """Return the folder of a dataset that comes with the package, or None if ``name`` is not one."""
    folder = _HERE / "bundled" / name
    return folder if name in _BUNDLED and (folder / "counts.json").is_file() else None


DATASETS: Mapping[str, DatasetSpec] = MappingProxyType(_load_specs())


def find_dataset(name: str) -> DatasetSpec:
    """Look up a dataset by its name, in any case.

    Raises:
        UserError: if there is none, with the closest names.
    """
    for known, spec in DATASETS.items():
        if known.casefold() == name.casefold():
            return spec
    raise unknown_name("dataset", name, list(DATASETS))


def dataset_folder(name: str, data_root: str | Path | None = None, progress: bool = True) -> Path:
    """Return a folder with the files ``train``, ``valid`` and ``test`` of a dataset, verified.

    Where local copies are given, by ``data_root`` or else by the environment variable ``REFACTORGNN_DATA``,
    they are used and nothing is ever downloaded. Otherwise the files are downloaded once into the user's
    cache folder, or that of ``REFACTORGNN_CACHE``. Bundled datasets need neither.

    Args:
        name: The dataset, as :func:`find_dataset` takes it.
        data_root: A folder with one folder for each dataset.
        progress: Show a bar while downloading.

    Raises:
        UserError: if a local copy is missing, or a download fails.
        FileError: if a file does not have the expected checksum.
    """
    spec = find_dataset(name)
    if spec.bundled:
        folder = bundled_folder(spec.name)
        assert folder is not None  # specs are made from these folders
        return folder
    root = local_root(data_root)
    if root is not None:
        return _local_folder(spec, root)
    folder = cache_folder() / spec.name
    if any(_split_file(folder, split) is None for split in SPLIT_NAMES):
        _download(spec, folder, progress)
    _verify(spec, folder, lambda path: f"delete {path.name} there to download it again")
    return folder


def local_root(data_root: str | Path | None = None) -> Path | None:
    """Return the folder with local copies: ``data_root``, or else what ``REFACTORGNN_DATA`` names, if anything."""
    root = data_root or os.environ.get(DATA_VARIABLE)
    return Path(root).expanduser() if root else None


def cache_folder() -> Path:
    """Return the folder that downloads are kept in."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    import pooch

    return Path(pooch.os_cache("refactorgnn"))


def _local_folder(spec: DatasetSpec, root: Path) -> Path:
    remedy = f"add it, or unset {DATA_VARIABLE} and --data-root to download the dataset"
    folder = root / spec.name
    for missing in (root, folder):
        if not missing.is_dir():
            raise UserError(f"no local copy of {spec.name}: the folder {missing} does not exist; {remedy}.")
    for split in SPLIT_NAMES:
        if _split_file(folder, split) is None:
            path = folder / f"{split}.txt"
            raise UserError(f"no local copy of {spec.name}: neither {path} nor {path.name}.gz exists; {remedy}.")
    _verify(spec, folder, lambda path: f"replace it by the original of {spec.name}")
    return folder


def _split_file(folder: Path, split: str) -> Path | None:
    return next((path for end in ("txt", "txt.gz") if (path := folder / f"{split}.{end}").is_file()), None)


def _verify(spec: DatasetSpec, folder: Path, remedy: Callable[[Path], str]) -> None:
    for split, file in spec.files.items():
        path = _split_file(folder, split)
        assert path is not None  # the callers have looked
        content = read_bytes(path)
        if not has_checksum(content, file.sha256):
            found = hashlib.sha256(content).hexdigest()
            digests = f"SHA-256 {found[:12]}…, expected {file.sha256[:12]}…"
            problem = f"is not the {split} file of {spec.name} ({digests})"
            raise FileError(path, problem, remedy(path))


def has_checksum(content: bytes, sha256: str) -> bool:
    """Whether ``content`` hashes to ``sha256``, give or take newlines at its end.

    The published UMLS files lack the final newline that other copies of them have, and members of archives
    may differ from loose copies in the same way. The triples are the same, so both pass.
    """
    return any(hashlib.sha256(variant).hexdigest() == sha256 for variant in _newline_variants(content))


def _newline_variants(content: bytes) -> Iterator[bytes]:
    yield content
    yield (bare := content.rstrip(b"\n"))
    yield bare + b"\n"


def _download(spec: DatasetSpec, folder: Path, progress: bool) -> None:
    """Fill ``folder`` by way of a scratch folder beside it, so that it appears complete or not at all."""
    staging: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{spec.name}-", dir=folder.parent))
        complete = staging / spec.name
        complete.mkdir()
        with download_bars(enabled=progress) as bars:
            for split, content in _contents(spec, staging, bars):
                (complete / f"{split}.txt").write_bytes(content)
        _move(complete, folder)
    except OSError as error:
        raise write_error(folder, error) from error
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)


def _contents(spec: DatasetSpec, scratch: Path, bars: Progress) -> Iterator[tuple[str, bytes]]:
    """Yield the content of each split, downloaded one by one or out of the archive."""
    if spec.archive is not None and spec.archive.url is not None:
        yield from _unpack(spec, fetch(spec.archive.url, spec.archive.sha256, scratch, spec.name, bars))
        return
    for split, file in spec.files.items():
        if file.url is None:
            raise UserError(f"{spec.name} has no address to download it from; set {DATA_VARIABLE} to a local copy.")
        yield split, fetch(file.url, file.sha256, scratch, f"{spec.name} {split}", bars)


def _unpack(spec: DatasetSpec, archive: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the splits in an archive, found by base name and checksum, wherever it keeps them.

    Nothing is extracted to a path of the archive's choosing.
    """
    found = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        for member in members:
            split = Path(member.name).name.removesuffix(".txt")
            stream = members.extractfile(member) if split in spec.files else None
            if stream is not None and has_checksum(content := stream.read(), spec.files[split].sha256):
                found[split] = content
    for split in spec.files:
        if split not in found:
            raise UserError(
                f"the archive of {spec.name} does not hold the expected {split}.txt;"
                f" set {DATA_VARIABLE} or --data-root to a folder with a local copy."
            )
        yield split, found[split]


def _move(complete: Path, folder: Path) -> None:
    """Move a folder into place; if there is one already, with a file missing, move the files into that."""
    try:
        complete.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
        for path in complete.iterdir():
            path.replace(folder / path.name)
