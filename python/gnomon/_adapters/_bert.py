"""Encoders of BERT's kind from Hugging Face transformers: the BertEncoder inside of BertModel (MiniLM and others too)."""

from __future__ import annotations

from typing import Any, Optional

import torch

from .._errors import expect
from ._protocol import Adapter, Request, Stack, expect_children, expect_dropouts
from ._transformers import (
    activation_name,
    expect_class,
    expect_known_release,
    is_class,
    model_output,
    valid_tokens,
)

_CODE = "transformers.models.bert.modeling_bert"


class BertEncoderAdapter(Adapter):
    name = "transformers BertEncoder"

    def matches(self, module: Any) -> bool:
        return is_class(module, _CODE, "BertEncoder")

    def describe(self, module: Any) -> Stack:
        expect_known_release()
        expect_class(module, _CODE, "BertEncoder")
        expect_children(module, "layer")
        layers = list(module.layer)
        expect(layers, "there is no layer")
        first = layers[0]
        activation = activation_name(first.intermediate.intermediate_act_fn)
        stack = Stack(first.attention.self.num_attention_heads, "post", activation)
        for n, layer in enumerate(layers):
            self._add_layer(stack, n, layer)
        return stack

    def _add_layer(self, stack: Stack, n: int, layer: Any) -> None:
        own = f"layers.{n}."
        expect_class(layer, _CODE, "BertLayer")
        expect_children(layer, "attention", "intermediate", "output")
        expect(not layer.is_decoder and not layer.add_cross_attention, f"layer {n} is a decoder's")
        attention, between, out = layer.attention, layer.intermediate, layer.output
        expect_class(attention, _CODE, "BertAttention")
        expect_children(attention, "self", "output")
        expect_class(attention.self, _CODE, "BertSelfAttention", "BertSdpaSelfAttention")
        expect(
            attention.self.position_embedding_type == "absolute",
            f"layer {n} has relative positions ({attention.self.position_embedding_type})",
        )
        expect_children(attention.self, "query", "key", "value", "dropout")
        expect(not attention.self.is_decoder, f"layer {n} is a decoder's")
        expect(attention.self.num_attention_heads == stack.n_heads, f"layer {n} has another number of heads")
        expect_class(attention.output, _CODE, "BertSelfOutput")
        expect_children(attention.output, "dense", "LayerNorm", "dropout")
        expect_class(between, _CODE, "BertIntermediate")
        expect(activation_name(between.intermediate_act_fn) == stack.activation, f"layer {n} has another activation")
        expect_class(out, _CODE, "BertOutput")
        expect_children(out, "dense", "LayerNorm", "dropout")
        for owner in (attention.self, attention.output, out):
            expect_dropouts(owner, "dropout")
        for part, name in (("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value")):
            stack.linear(f"{own}attn.{part}", getattr(attention.self, name))
        stack.linear(own + "attn.out_proj", attention.output.dense)
        stack.norm(own + "norm1", attention.output.LayerNorm)
        stack.linear(own + "fc1", between.dense)
        stack.linear(own + "fc2", out.dense)
        stack.norm(own + "norm2", out.LayerNorm)

    def bind(
        self,
        module: Any,
        stack: Stack,
        hidden_states: torch.Tensor,
        attention_mask: Optional[torch.Tensor] = None,
        head_mask: Any = None,
        encoder_hidden_states: Optional[torch.Tensor] = None,
        encoder_attention_mask: Optional[torch.Tensor] = None,
        past_key_values: Any = None,
        use_cache: Optional[bool] = None,
        output_attentions: Optional[bool] = False,
        output_hidden_states: Optional[bool] = False,
        return_dict: Optional[bool] = True,
    ) -> Request:
        expect(head_mask is None or all(m is None for m in head_mask), "a head mask is given")
        expect(encoder_hidden_states is None and past_key_values is None, "keys and values come from elsewhere")
        expect(not use_cache, "use_cache is on: the keys and values of each layer are wanted")
        expect(not output_attentions, "output_attentions is on: the scores of each layer are wanted")
        expect(not output_hidden_states, "output_hidden_states is on: the states of each layer are wanted")
        mask = valid_tokens(attention_mask, hidden_states)
        return Request(
            hidden_states, mask, own_blind_rows=True, finish=lambda hidden: model_output(hidden, bool(return_dict))
        )
