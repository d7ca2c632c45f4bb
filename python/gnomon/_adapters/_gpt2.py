"""GPT-2 from Hugging Face transformers: the blocks and the last norm of a GPT2Model. Its embeddings stay its own."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import nn

from .._errors import expect
from ._protocol import Adapter, Request, Stack, expect_children, expect_dropouts, expect_own_code, plain_class
from ._transformers import activation_name, expect_class, expect_known_release, is_class, model_output

_CODE = "transformers.models.gpt2.modeling_gpt2"


class GPT2ModelAdapter(Adapter):
    name = "transformers GPT2Model"

    def matches(self, module: Any) -> bool:
        return is_class(module, _CODE, "GPT2Model")

    def describe(self, module: Any) -> Stack:
        expect_known_release()
        expect_class(module, _CODE, "GPT2Model")
        expect_children(module, "wte", "wpe", "drop", "h", "ln_f")
        expect(not getattr(module, "model_parallel", False), "it is spread over devices (parallelize)")
        blocks = list(module.h)
        expect(blocks, "there is no layer")
        activation = activation_name(blocks[0].mlp.act)
        parts = [*module.h.modules(), module.ln_f]
        stack = Stack(blocks[0].attn.num_heads, "pre", activation, causal=True, parts=parts)
        for n, block in enumerate(blocks):
            self._add_block(stack, n, block)
        stack.norm("norm", module.ln_f)
        return stack

    def _add_block(self, stack: Stack, n: int, block: Any) -> None:
        own = f"layers.{n}."
        expect_class(block, _CODE, "GPT2Block")
        expect_children(block, "ln_1", "attn", "ln_2", "mlp")
        attention, mlp = block.attn, block.mlp
        expect_class(attention, _CODE, "GPT2Attention", "GPT2SdpaAttention")
        expect_children(attention, "c_attn", "c_proj", "attn_dropout", "resid_dropout")
        expect(not attention.is_cross_attention, f"block {n} attends to keys from elsewhere")
        expect(attention.scale_attn_weights, f"block {n} does not scale its scores")
        expect(not attention.scale_attn_by_inverse_layer_idx, f"block {n} scales its scores by its number")
        expect(not attention.reorder_and_upcast_attn, f"block {n} has reorder_and_upcast_attn")
        expect(attention.num_heads == stack.n_heads, f"block {n} has another number of heads")
        expect(_is_lower_triangle(attention.bias), f"block {n}: the buffer `bias` is not exactly causal")
        expect_class(mlp, _CODE, "GPT2MLP")
        expect_children(mlp, "c_fc", "c_proj", "act", "dropout")
        expect(activation_name(mlp.act) == stack.activation, f"block {n} has another activation")
        expect_dropouts(attention, "attn_dropout", "resid_dropout")
        expect_dropouts(mlp, "dropout")
        stack.norm(own + "norm1", block.ln_1)
        self._add_joint_projection(stack, own, attention.c_attn)
        _add_conv1d(stack, own + "attn.out_proj", attention.c_proj)
        stack.norm(own + "norm2", block.ln_2)
        _add_conv1d(stack, own + "fc1", mlp.c_fc)
        _add_conv1d(stack, own + "fc2", mlp.c_proj)

    def _add_joint_projection(self, stack: Stack, own: str, conv: Any) -> None:
        _expect_conv1d(conv, own + "attn.c_attn")
        weights, biases = conv.weight.detach().t().chunk(3), conv.bias.detach().chunk(3)
        for part, weight, bias in zip(("q_proj", "k_proj", "v_proj"), weights, biases):
            stack.tensor(f"{own}attn.{part}.weight", weight)
            stack.tensor(f"{own}attn.{part}.bias", bias)

    def bind(
        self,
        module: Any,
        stack: Stack,
        input_ids: Optional[torch.Tensor] = None,
        past_key_values: Any = None,
        attention_mask: Optional[torch.Tensor] = None,
        token_type_ids: Optional[torch.Tensor] = None,
        position_ids: Optional[torch.Tensor] = None,
        head_mask: Any = None,
        inputs_embeds: Optional[torch.Tensor] = None,
        encoder_hidden_states: Optional[torch.Tensor] = None,
        encoder_attention_mask: Optional[torch.Tensor] = None,
        use_cache: Optional[bool] = None,
        output_attentions: Optional[bool] = None,
        output_hidden_states: Optional[bool] = None,
        return_dict: Optional[bool] = None,
    ) -> Request:
        config: Any = module.config

        def wanted(given: Optional[bool], name: str) -> bool:
            return bool(getattr(config, name) if given is None else given)

        expect(
            not wanted(use_cache, "use_cache"),
            "use_cache is on: the keys and values of each layer are wanted (pass use_cache=False)",
        )
        expect(past_key_values is None and encoder_hidden_states is None, "keys and values come from elsewhere")
        expect(head_mask is None, "a head mask is given")
        expect(not wanted(output_attentions, "output_attentions"), "output_attentions is on")
        expect(not wanted(output_hidden_states, "output_hidden_states"), "output_hidden_states is on")
        expect((input_ids is None) != (inputs_embeds is None), "input_ids and inputs_embeds: exactly one is expected")
        given: Any = input_ids if inputs_embeds is None else inputs_embeds
        expect(given.dim() == (2 if inputs_embeds is None else 3), f"the input has {given.dim()} axes")
        batch, seq = given.shape[:2]
        mask = _valid_tokens(attention_mask, batch, seq)
        with_dict = wanted(return_dict, "use_return_dict")
        return Request(
            None,
            mask,
            make_x=lambda: _embed(module, given, inputs_embeds is None, token_type_ids, position_ids, seq),
            own_blind_rows=True,
            finish=lambda hidden: model_output(hidden, with_dict),
        )


def _embed(module: Any, given: Any, are_ids: bool, types: Any, positions: Any, seq: int) -> torch.Tensor:
    if positions is None:
        positions = torch.arange(seq, dtype=torch.long, device=given.device).unsqueeze(0)
    x = (module.wte(given) if are_ids else given) + module.wpe(positions)
    if types is not None:
        x = x + module.wte(types.view(-1, seq))
    return module.drop(x)


def _valid_tokens(mask: Optional[torch.Tensor], batch: int, seq: int) -> Optional[torch.Tensor]:
    if mask is None:
        return None
    expect(mask.shape == (batch, seq), f"attention_mask has shape {list(mask.shape)}, not [{batch}, {seq}]")
    valid = mask == 1
    expect(bool((valid | (mask == 0)).all()), "attention_mask holds more than 0 and 1")
    return valid


def _expect_conv1d(module: Any, name: str) -> None:
    is_conv = is_class(module, "transformers.pytorch_utils", "Conv1D")
    expect(is_conv, f"{name} is a {type(module).__name__}, not a Conv1D")
    expect_own_code(plain_class(module))
    expect(all(type(t) is nn.Parameter for t in (module.weight, module.bias)), f"{name} has no plain parameters")


def _add_conv1d(stack: Stack, name: str, module: Any) -> None:
    """A Conv1D keeps its weight as [in, out]."""
    _expect_conv1d(module, name)
    stack.tensor(name + ".weight", module.weight.detach().t())
    stack.tensor(name + ".bias", module.bias.detach())


def _is_lower_triangle(buffer: torch.Tensor) -> bool:
    square = buffer[0, 0]
    return square.dtype in (torch.bool, torch.uint8) and torch.equal(
        square.bool(), torch.ones_like(square.bool()).tril()
    )
