"""Graphs and where they come from: files, folders, known datasets."""

from refactorgnn.data.datasets import DATASETS, find_dataset
from refactorgnn.data.files import read_triples, write_triples
from refactorgnn.data.graph import InductivePair, KnowledgeGraph, graph_from_tables
from refactorgnn.data.interop import from_edges, from_pyg, from_pykeen, to_edges, to_pyg, to_pykeen
from refactorgnn.data.loading import load_file, load_folder, load_graph, load_pair, save_graph
from refactorgnn.data.queries import QueryIndex
from refactorgnn.data.splits import split_triples
from refactorgnn.data.text_features import TextFeatures, encode_texts
from refactorgnn.data.vocabulary import Vocabulary

__all__ = [
    "DATASETS",
    "InductivePair",
    "KnowledgeGraph",
    "QueryIndex",
    "TextFeatures",
    "Vocabulary",
    "encode_texts",
    "find_dataset",
    "from_edges",
    "from_pyg",
    "from_pykeen",
    "graph_from_tables",
    "load_file",
    "load_folder",
    "load_graph",
    "load_pair",
    "read_triples",
    "save_graph",
    "split_triples",
    "to_edges",
    "to_pyg",
    "to_pykeen",
    "write_triples",
]
