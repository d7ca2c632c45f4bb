"""Writes the seed corpora: small valid inputs from which the fuzzer departs. Usage: make_corpus.py [FOLDER]"""
import json
import pathlib
import struct
import sys


def safetensors(entries, data=b"", metadata=None):
    header = dict(entries)
    if metadata:
        header["__metadata__"] = metadata
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def npy(version, descr, shape, data):
    text = str({"descr": descr, "fortran_order": False, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text + data


SEEDS = {
    "safetensors": {
        "empty": safetensors({}),
        "two": safetensors({"norm.weight": tensor("F32", [2], 0, 8), "norm.bias": tensor("BF16", [2, 1], 8, 12)}, bytes(12), {"gnomon.config": "d2"}),
        "bert": safetensors({"bert.encoder.layer.0.output.LayerNorm.gamma": tensor("F16", [1], 0, 2), "embeddings.position_ids": tensor("I64", [1], 2, 10)}, bytes(10)),
        "scalar": safetensors({"a": tensor("F64", [], 0, 8), "none": tensor("U8", [0, 3], 0, 0)}, bytes(8)),
        "overlap": safetensors({"a": tensor("U8", [2], 0, 2), "b": tensor("U8", [2], 1, 3)}, bytes(3)),
    },
    "grammar": {
        "suite": b"b64 s100 d128 h4 l3 f512 causal post gelu f32 @cpu",
        "all": b"b2 s3 d7 h7 l2 ff16 bi pre gelu_tanh nobias finalnorm eps=1e-12 bf16 mask inplace abs=0.001 rel=0.125 headroom=0.5 @cuda:3",
        "relu": b"relu f16 eps=0x1p-3 abs=inf",
        "twice": b"b1 b2",
    },
    "npy": {
        "f4": npy(1, "<f4", (2, 3), bytes(24)),
        "b1": npy(2, "|b1", (3,), bytes(3)),
        "scalar": npy(3, "<f8", (), bytes(8)),
    },
}


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "corpus"
    for target, seeds in SEEDS.items():
        (folder / target).mkdir(parents=True, exist_ok=True)
        for name, content in seeds.items():
            (folder / target / name).write_bytes(content)


if __name__ == "__main__":
    main()
