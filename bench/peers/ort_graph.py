"""The stack as an ONNX graph of ONNX Runtime's own fused operators, the fastest form it has for this model on a CPU."""

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from stack_config import StackConfig

MICROSOFT = "com.microsoft"


class Builder:
    def __init__(self, config: StackConfig, weights: dict[str, np.ndarray]):
        self.config, self.weights = config, weights
        self.nodes, self.initializers = [], []

    def constant(self, name: str, value: np.ndarray) -> str:
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def weight(self, name: str) -> str:
        return self.constant(name, self.weights[name])

    def transposed(self, name: str) -> str:
        return self.constant(name, self.weights[name].T)  # MatMul wants [in, out], Linear stores [out, in]

    def node(self, op: str, inputs: list[str], output: str, domain: str = "", **attributes) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], domain=domain, **attributes))
        return output

    def attention(self, x: str, prefix: str) -> str:
        names = [f"{prefix}.{p}_proj" for p in "qkv"]
        weight = self.constant(
            f"{prefix}.qkv.weight", np.concatenate([self.weights[f"{n}.weight"].T for n in names], axis=1)
        )
        bias = self.constant(f"{prefix}.qkv.bias", np.concatenate([self.weights[f"{n}.bias"] for n in names]))
        heads = self.node(
            "Attention",
            [x, weight, bias],
            f"{prefix}.heads",
            MICROSOFT,
            num_heads=self.config.n_heads,
            unidirectional=int(self.config.causal),
        )
        return self.node("MatMul", [heads, self.transposed(f"{prefix}.out_proj.weight")], f"{prefix}.out")

    def feed_forward(self, x: str, prefix: str) -> str:
        hidden = self.node("MatMul", [x, self.transposed(f"{prefix}.fc1.weight")], f"{prefix}.fc1")
        hidden = self.node("BiasGelu", [hidden, self.weight(f"{prefix}.fc1.bias")], f"{prefix}.gelu", MICROSOFT)
        return self.node("MatMul", [hidden, self.transposed(f"{prefix}.fc2.weight")], f"{prefix}.fc2")

    def add_norm(self, branch: str, residual: str, norm: str, bias: str, output: str) -> str:
        inputs = [branch, residual, self.weight(f"{norm}.weight"), self.weight(f"{norm}.bias"), self.weight(bias)]
        return self.node("SkipLayerNormalization", inputs, output, MICROSOFT, epsilon=self.config.eps)

    def layer(self, x: str, index: int, output: str) -> str:
        prefix = f"layers.{index}"
        branch = self.attention(x, f"{prefix}.attn")
        x = self.add_norm(branch, x, f"{prefix}.norm1", f"{prefix}.attn.out_proj.bias", f"{prefix}.mid")
        branch = self.feed_forward(x, prefix)
        return self.add_norm(branch, x, f"{prefix}.norm2", f"{prefix}.fc2.bias", output)


def build(config: StackConfig, weights: dict[str, np.ndarray], batch: int, seq: int) -> ModelProto:
    if (config.norm, config.activation, config.bias, config.final_norm) != ("post", "gelu", True, False):
        raise ValueError(f"expected a post-norm erf-GELU stack with biases and no final norm, got '{config.grammar()}'")
    builder = Builder(config, weights)
    x = "x"
    for index in range(config.layers):
        x = builder.layer(x, index, "y" if index == config.layers - 1 else f"layers.{index}.out")
    shape = [batch, seq, config.d_model]
    graph = helper.make_graph(
        builder.nodes,
        "stack",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        builder.initializers,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)
