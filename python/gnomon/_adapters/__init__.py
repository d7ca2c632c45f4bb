"""What Gnomon knows of modules: one file per family, newest registration first when two match."""

from __future__ import annotations

from typing import List, Optional

from torch import nn

from ._bert import BertEncoderAdapter
from ._gpt2 import GPT2ModelAdapter
from ._protocol import Adapter, Request, Stack, expect_children, plain_class
from ._reference import ReferenceAdapter
from ._torch_encoder import TransformerEncoderAdapter, TransformerEncoderLayerAdapter

__all__ = ["Adapter", "Request", "Stack", "adapter_for", "expect_children", "known", "plain_class", "register_adapter"]

_adapters: List[Adapter] = [
    ReferenceAdapter(),
    TransformerEncoderAdapter(),
    TransformerEncoderLayerAdapter(),
    BertEncoderAdapter(),
    GPT2ModelAdapter(),
]


def register_adapter(adapter: Adapter) -> Adapter:
    """Adds an adapter for modules of your own; it is asked before those that are there. Returns it.

    Modules that were optimized before keep the adapter that they have.
    """
    _adapters.insert(0, adapter)
    return adapter


def adapter_for(module: nn.Module) -> Optional[Adapter]:
    return next((adapter for adapter in _adapters if adapter.matches(module)), None)


def known() -> str:
    """The names of all adapters, for messages."""
    return ", ".join(adapter.name for adapter in _adapters)
