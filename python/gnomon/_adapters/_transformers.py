"""What the adapters for Hugging Face transformers share. The package is never imported here: its modules bring it along."""

from __future__ import annotations

import sys
from typing import Any, Optional

import torch
from torch import nn
from torch.nn import functional as F

from .._errors import expect
from .._masks import additive_padding
from ._protocol import expect_own_code, plain_class

# Releases whose BERT and GPT-2 code is the one that these adapters were written for. Later ones moved attention out of the
# classes, so that a class no longer says what it computes.
_FIRST, _END = (4, 26), (4, 48)
_ACTIVATIONS = {
    "GELUActivation": "gelu",
    "NewGELUActivation": "gelu_tanh",
    "PytorchGELUTanh": "gelu_tanh",
    "FastGELUActivation": "gelu_tanh",
    "ReLU": "relu",
    "GELU": "gelu",
}


def expect_known_release() -> None:
    version = str(getattr(sys.modules.get("transformers"), "__version__", "?"))
    parts = version.split(".")
    number = tuple(int(part) for part in parts[:2]) if all(part.isdigit() for part in parts[:2]) else (0, 0)
    expect(
        _FIRST <= number < _END,
        f"transformers {version} is not one that this adapter was written for ({_FIRST[0]}.{_FIRST[1]} to before {_END[0]}.{_END[1]})",
    )


def is_class(module: Any, path: str, *names: str) -> bool:
    kind = plain_class(module)
    return kind.__name__ in names and kind.__module__ == path


def expect_class(module: Any, path: str, *names: str) -> None:
    """Raises NotRecognised unless the module is of one of the classes, and these are as transformers made them."""
    expect(is_class(module, path, *names), f"{type(module).__name__} where {' or '.join(names)} is expected")
    expect_own_code(plain_class(module))


def activation_name(module: Any) -> str:
    kind = type(module)
    expect(
        kind.__name__ in _ACTIVATIONS
        and kind.__module__ in ("transformers.activations", "torch.nn.modules.activation"),
        f"activation {kind.__name__} is not a ReLU or GELU that we know",
    )
    expect_own_code(kind)
    expect(kind is not nn.GELU or module.approximate == "none", "activation nn.GELU is approximate")
    if kind.__name__ == "GELUActivation":
        expect(module.act in (F.gelu, module._gelu_python), "activation GELUActivation has another function in it")
    return _ACTIVATIONS[kind.__name__]


def valid_tokens(mask: Optional[torch.Tensor], x: torch.Tensor) -> Optional[torch.Tensor]:
    """The extended mask of these models ([B, 1, 1 or S, S], 0 or the type's lowest number) as [B, S], True = valid."""
    if mask is None:
        return None
    batch, seq = x.shape[0], x.shape[1]
    shapes = (batch, 1, 1, seq), (batch, 1, seq, seq)
    expect(mask.shape in shapes, f"attention_mask has shape {list(mask.shape)}, not {list(shapes[0])}")
    if mask.shape[2] != 1 and mask.stride(2) != 0:
        expect(bool((mask == mask[:, :, :1]).all()), "attention_mask differs between the tokens of a sequence")
    return additive_padding(mask[:, 0, 0], torch.finfo(mask.dtype).min if mask.is_floating_point() else None)


def model_output(hidden: torch.Tensor, return_dict: bool) -> Any:
    if not return_dict:
        return (hidden,)
    outputs = sys.modules["transformers.modeling_outputs"]
    return outputs.BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=hidden)
