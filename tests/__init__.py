"""Tests. Where no GPU is, Triton interprets its kernels; it has to know before anything imports it."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
