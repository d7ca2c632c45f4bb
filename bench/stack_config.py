"""A stack's structure and the suite's shapes, without any framework: every worker process can read them."""

import json
from dataclasses import dataclass
from pathlib import Path

SUITE = Path(__file__).resolve().parent / "suite.json"


@dataclass(frozen=True)
class StackConfig:
    layers: int = 3
    d_model: int = 128
    n_heads: int = 4
    d_ff: int = 512
    norm: str = "post"  # post | pre
    activation: str = "gelu"  # gelu | gelu_tanh | relu
    causal: bool = True
    bias: bool = True
    final_norm: bool = False
    eps: float = 1e-5

    @property
    def head_dim(self) -> int:
        return self.d_model // self.n_heads

    def grammar(self) -> str:
        """The configuration's part of the problem grammar."""
        words = [
            f"d{self.d_model}",
            f"h{self.n_heads}",
            f"l{self.layers}",
            f"f{self.d_ff}",
            "causal" if self.causal else "bi",
            self.norm,
            self.activation,
        ]
        words += ["nobias"] if not self.bias else []
        words += ["finalnorm"] if self.final_norm else []
        words += [f"eps={self.eps:g}"] if self.eps != 1e-5 else []
        return " ".join(words)


@dataclass(frozen=True)
class Shape:
    id: int
    batch: int
    seq: int
    config: StackConfig

    @property
    def problem(self) -> str:
        return f"b{self.batch} s{self.seq} {self.config.grammar()}"

    @property
    def activation_bytes(self) -> int:
        return 4 * self.batch * self.seq * self.config.d_model

    @property
    def score_bytes(self) -> int:
        return 4 * self.batch * self.config.n_heads * self.seq * self.seq

    @property
    def ffn_bytes(self) -> int:
        return 4 * self.batch * self.seq * self.config.d_ff


def load_suite(path: Path = SUITE) -> tuple[dict, list[Shape]]:
    """The contract and the shapes of a suite file."""
    suite = json.loads(Path(path).read_text())
    shapes = [
        Shape(
            s["id"],
            s["B"],
            s["S"],
            StackConfig(layers=s["n_layers"], d_model=s["d_model"], n_heads=s["n_heads"], d_ff=s["d_ff"]),
        )
        for s in suite["shapes"]
    ]
    return suite["contract"], shapes
