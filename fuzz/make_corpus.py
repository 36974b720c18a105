"""Writes the first inputs of the format fuzzers, corpus/gguf, corpus/safetensors and corpus/maps: small sound files that reach every
branch of the readers, and a few broken in one place. Plain Python."""

import json
import pathlib
import struct

HERE = pathlib.Path(__file__).parent / "corpus"


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def scalar(kind, code, value):
    return struct.pack("<I" + code, kind, value)


def array(kind, items):
    return struct.pack("<IIQ", 9, kind, len(items)) + b"".join(items)


def gguf(entries, tensors, version=3, alignment=32):
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries))
    for key, value in entries:
        head += text(key) + value
    data = b""
    for name, sizes, kind, raw in tensors:
        data += bytes(-len(data) % alignment)
        head += text(name) + struct.pack("<I", len(sizes)) + b"".join(struct.pack("<Q", n) for n in sizes)
        head += struct.pack("<IQ", kind, len(data))
        data += raw
    return head + bytes(-len(head) % alignment) + data


def safetensors(header, data):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def main():
    codes = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q", 11: "q", 12: "d"}
    entries = [(f"a.{k}", scalar(k, c, 7)) for k, c in codes.items()]
    entries += [("a.true", scalar(7, "B", 1)), ("general.name", struct.pack("<I", 8) + text("tiny"))]
    entries += [(f"l.{k}", array(k, [struct.pack("<" + c, v) for v in (1, 2, 3)])) for k, c in codes.items()]
    entries += [("l.bool", array(7, [b"\0", b"\1"])), ("l.text", array(8, [text("a"), text("")]))]
    inner = array(5, [struct.pack("<i", -1)])[4:]
    entries += [("l.nested", array(9, [inner, inner])), ("l.empty", array(8, []))]
    blocks = {0: (4, 4), 1: (4, 2), 30: (4, 2), 3: (32, 20), 6: (32, 22), 8: (32, 34), 12: (256, 144), 14: (256, 210), 26: (4, 4)}
    tensors = [(f"t.{k}", [n], k, bytes(range(b * (1 if n > 4 else n)))) for k, (n, b) in blocks.items()]
    tensors += [("t.matrix", [2, 3], 0, bytes(24)), ("t.none", [0, 3], 0, b""), ("t.scalar", [], 0, bytes(4))]
    aligned = [("general.alignment", scalar(4, "I", 8))]
    deep = b"".join(struct.pack("<IQ", 9, 1) for _ in range(12))
    files = {
        "all": gguf(entries, tensors),
        "version2": gguf(entries[:3], tensors[:1], version=2),
        "empty": gguf([], []),
        "aligned8": gguf(aligned, tensors[:3], alignment=8),
        "big_endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
        "deep": gguf([("deep", struct.pack("<I", 9) + deep)], []),
        "cut": gguf(entries, tensors)[:200],
    }
    write("gguf", files)

    types = {"F32": 4, "F16": 2, "BF16": 2, "F64": 8, "I8": 1, "I16": 2, "I32": 4, "I64": 8, "U8": 1, "BOOL": 1}
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, size in types.items():
        header[f"t.{name}"] = {"dtype": name, "shape": [2, 1], "data_offsets": [at, at + 2 * size]}
        at += 2 * size
    header["none"] = {"dtype": "F32", "shape": [0, 3], "data_offsets": [at, at]}
    odd = {"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}, "b": {"dtype": "F32", "shape": [], "data_offsets": [1, 5]}}
    files = {
        "all": safetensors(header, bytes(range(at))),
        "empty": safetensors({}, b""),
        "misaligned": safetensors(odd, bytes(5)),
        "deep": safetensors(b'{"a":' + b"[" * 40 + b"]" * 40 + b"}", b""),
        "twice": safetensors(b'{"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}', b"\0"),
        "hole": safetensors({"a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}}, bytes(2)),
    }
    write("safetensors", files)
    write("maps", maps())


def maps():
    """Files of attention maps: every tensor, type and piece of metadata that the reader knows, and what it refuses."""

    def triangle(n, code="f", window=0):
        weights = [(j + 1) / 10 if i - (window or n) < j <= i else 0 for i in range(n) for j in range(n)]
        return struct.pack(f"<{n * n}{code}", *weights)

    def file(tensors, metadata=None):
        header, data = {"__metadata__": metadata} if metadata else {}, b""
        for name, dtype, shape, raw in tensors:
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
            data += raw
        return safetensors(header, data)

    def head(layer, number, part="positive", n=8, dtype="F32", code="f", window=0):
        return (f"layer.{layer}.head.{number}.{part}", dtype, [n, n], triangle(n, code, window))

    ids = ("tokens", "I32", [8], struct.pack("<8i", 1, 2, 3, 1, 2, 3, 1, 2))
    pair = [head(0, 0), head(0, 0, "noise"), head(0, 1), head(0, 1, "noise")]
    lambdas = ("layer.0.lambda", "F32", [2], struct.pack("<2f", 0.5, -0.25))
    rows = ("layer.0.lambda", "F32", [2, 8], struct.pack("<16f", *([0.5] * 16)))
    pieces = json.dumps(["a", "\n", "\u00e9", "", "b", "c", "d", "e"])
    return {
        "all": file(pair + [lambdas, ids, head(3, 7, window=4)], {"model": "m", "pieces": pieces, "windows": '{"3": 4}'}),
        "lambda_by_row": file(pair + [rows]),
        "types": file([head(0, 0, dtype="F16", code="e", n=5), head(1, 0, dtype="F64", code="d", n=5)]),
        "one_token": file([head(0, 0, n=1)]),
        "not_causal": file([("layer.0.head.0.positive", "F32", [2, 2], struct.pack("<4f", 1, 1, 1, 1))]),
        "not_finite": file([("layer.0.head.0.positive", "F32", [2, 2], struct.pack("<4f", float("nan"), 0, 1, 1))]),
        "huge": file([("layer.0.head.0.positive", "F32", [3, 3], struct.pack("<9f", 3e38, 0, 0, 3e38, -3e38, 0, 3e38, 3e38, 3e38))]),
        "no_lambda": file(pair),
        "no_maps": file([ids]),
    }



def write(target, files):
    folder = HERE / target
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
