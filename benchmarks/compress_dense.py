"""Dense compression: file size, quality and latency of each method beside peers, on one thread.

Models: a CTR network trained on UCI Adult (embeddings of 8 categorical columns and 6 numbers, then
134-512-256-1; the part after the embeddings is measured), and a tower 512-1024-512-256-64 of random weights.
Peers: ONNX Runtime with float32, the dynamic quantization of onnxruntime.quantization, torch eager; and where
the package nncf is installed, NNCF's quantization of the model as OpenVINO has it, beside graphbox's
int8_static, both in OpenVINO itself (``openvino alone``), as NNCF's model is no ONNX file that an adapter
takes. Latencies are medians of calls, the systems in turns; ``rate`` is calls per second of processor time,
as the thread waits for nothing and other programs on the machine are not to count.

    python -m benchmarks.compress_dense --root FOLDER_WITH_ADULT_CSV_GZ --json
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from benchmarks.measure import REPEATS, Measurement, show, show_in_turns
from graphbox.compress.dense import Calibration, convert_dense, dense_methods
from graphbox.compress.dense.values import open_on_cpu
from graphbox.deploy import Options, choose, compile_model
from graphbox.errors import UsageError
from graphbox.export.onnx import TensorInput, export_onnx

BATCHES = (1, 32, 512)
EMBEDDING_DIM = 16
EPOCHS = 4
TEST_SHARE = 0.2
SECONDS_PER_TURN = 0.1
CATEGORICAL = (
    "workclass",
    "education",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "gender",
    "native-country",
)
OPENVINO_SETTINGS = {
    "INFERENCE_NUM_THREADS": 1,
    "NUM_STREAMS": 1,
    "INFERENCE_PRECISION_HINT": "f32",
    "PERFORMANCE_HINT": "LATENCY",
}
"""Those of graphbox's adapter."""
NUMBERS = ("age", "fnlwgt", "educational-num", "capital-gain", "capital-loss", "hours-per-week")

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Case:
    """A model to compress.

    Attributes:
        name: of the model.
        module: the torch module of its ONNX part.
        calibration: feeds for the methods that need them.
        rows: inputs to measure quality on.
        quality: figure of the outputs for `rows`, higher is better.
        unit: of the quality.
    """

    name: str
    module: nn.Module
    calibration: Calibration
    rows: Floats
    quality: Callable[[Floats], float]
    unit: str


class Clicks(nn.Module):
    """Embeddings and an MLP, trained together."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(size, EMBEDDING_DIM) for size in sizes)
        self.dense = layers(len(sizes) * EMBEDDING_DIM + len(NUMBERS), 512, 256, 1)

    def inputs(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Return the inputs of the part after the embeddings."""
        rows = [table(codes[:, number]) for number, table in enumerate(self.embeddings)]
        return torch.cat([*rows, numbers], 1)

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.dense(self.inputs(codes, numbers))
        return logits[:, 0]


def layers(*widths: int) -> nn.Sequential:
    """Return an MLP with ReLU between its layers."""
    parts: list[nn.Module] = []
    for rows, columns in pairwise(widths):
        parts += [nn.Linear(rows, columns), nn.ReLU()]
    return nn.Sequential(*parts[:-1]).eval()


def adult(path: Path) -> tuple[Tensor, Tensor, Tensor, list[int]]:
    """Return codes [n, 8], standardized numbers [n, 6], labels [n] and the sizes of the vocabularies."""
    if not path.is_file():
        raise UsageError(f"expected the file {path}, which is not there", hint="--root FOLDER")
    with gzip.open(path, "rt") as stream:
        lines = list(csv.DictReader(stream))
    codes, sizes = [], []
    for column in CATEGORICAL:
        values, found = np.unique([line[column] for line in lines], return_inverse=True)
        codes.append(found)
        sizes.append(len(values))
    numbers = np.array([[float(line[column]) for column in NUMBERS] for line in lines])
    numbers[:, 1:5] = np.log1p(numbers[:, 1:5])
    numbers = (numbers - numbers.mean(0)) / numbers.std(0)
    labels = np.array([line["income"].startswith(">50K") for line in lines])
    return (
        torch.from_numpy(np.stack(codes, 1)),
        torch.from_numpy(numbers.astype(np.float32)),
        torch.from_numpy(labels.astype(np.float32)),
        sizes,
    )


def area_under_curve(scores: Floats, labels: npt.NDArray[np.bool_]) -> float:
    """Return the share of pairs of a positive and a negative in the right order."""
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    positives = int(labels.sum())
    excess = ranks[labels].sum() - positives * (positives + 1) / 2
    return float(excess / (positives * (len(labels) - positives)))


def click_case(path: Path, epochs: int) -> Case:
    """Train the CTR network."""
    codes, numbers, labels, sizes = adult(path)
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(labels)))
    split = int(len(order) * (1 - TEST_SHARE))
    train, test = order[:split], order[split:]
    model = Clicks(sizes)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, weight_decay=1e-6)
    for _ in range(epochs):
        shuffled = train[torch.randperm(len(train))]
        for batch in torch.split(shuffled, 256):
            loss = nn.functional.binary_cross_entropy_with_logits(
                model(codes[batch], numbers[batch]), labels[batch]
            )
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
    with torch.no_grad():
        known, held_out = (model.inputs(codes[part], numbers[part]).numpy() for part in (train, test))
    truth = labels[test].numpy() > 0
    return Case(
        "ctr",
        model.dense,
        Calibration.of_feeds([{"x": known[:512]}]),
        held_out,
        lambda outputs: area_under_curve(outputs[:, 0], truth),
        "AUC",
    )


def tower_case() -> Case:
    """Return the tower with random weights."""
    module = layers(512, 1024, 512, 256, 64)
    rows = np.random.default_rng(0).standard_normal((1024, 512)).astype(np.float32)
    with torch.no_grad():
        expected = module(torch.from_numpy(rows)).numpy()

    def cosine(outputs: Floats) -> float:
        lengths = np.linalg.norm(outputs, axis=1) * np.linalg.norm(expected, axis=1)
        return float(((outputs * expected).sum(1) / lengths).mean())

    return Case("tower", module, Calibration.of_feeds([{"x": rows[:512]}]), rows, cosine, "cosine")


def peer_dynamic(model: bytes) -> bytes:
    """Return the model as onnxruntime.quantization quantizes it dynamically, with signed weights."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    logging.getLogger().setLevel(logging.ERROR)
    proto = onnx.load_model_from_string(model)
    proto.graph.ClearField("value_info")
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder) / "before.onnx", Path(folder) / "after.onnx"
        onnx.save(proto, before)
        quantize_dynamic(before, after, weight_type=QuantType.QInt8, per_channel=True)
        return after.read_bytes()


class OpenVinoAlone:
    """A model in OpenVINO without graphbox, by one request.

    Args:
        model: one of OpenVINO's.
    """

    def __init__(self, model: Any) -> None:
        compiled = import_module("openvino").Core().compile_model(model, "CPU", OPENVINO_SETTINGS)
        self._request = compiled.create_infer_request()

    def run(self, feeds: Mapping[str, Floats]) -> dict[str, Floats]:
        """Return the output of a model with one."""
        return {"y": self._request.infer(dict(feeds))[0]}


def read_openvino(model: bytes) -> Any:
    """Return an ONNX file as OpenVINO has it."""
    return import_module("openvino").Core().read_model(io.BytesIO(model))


def peer_nncf(model: bytes, calibration: Calibration) -> tuple[Any, int] | None:
    """Return the model as NNCF quantizes it with its defaults, and its bytes on disk; None: it is missing."""
    if find_spec("nncf") is None:
        return None
    nncf, openvino = import_module("nncf"), import_module("openvino")
    logging.getLogger("nncf").setLevel(logging.ERROR)
    (feed,) = calibration.feeds
    batches = [{"x": part} for part in np.array_split(feed["x"], 16)]
    quantized = nncf.quantize(read_openvino(model), nncf.Dataset(batches))
    with tempfile.TemporaryDirectory() as folder:
        openvino.save_model(quantized, Path(folder) / "model.xml", compress_to_fp16=False)
        return quantized, sum(path.stat().st_size for path in Path(folder).iterdir())


def calls_per_second(call: Callable[[], object], seconds: float) -> Callable[[], float]:
    """Return a measurement: the inverse of the median processor time of a call."""

    def rate() -> float:
        durations: list[float] = []
        stop = time.perf_counter() + seconds
        while len(durations) < 3 or time.perf_counter() < stop:
            began = time.process_time()
            call()
            durations.append(time.process_time() - began)
        return 1 / statistics.median(durations)

    return rate


def figure(case: str, system: str, value: float, unit: str, as_json: bool) -> None:
    """Print a figure that is no rate."""
    show(Measurement(case, system, 1, value, unit, value, value, 1, value), as_json=as_json)


def measure_case(case: Case, as_json: bool, seconds: float) -> None:
    """Print size, quality and latency of all systems."""
    example = TensorInput("x", torch.from_numpy(case.rows[:4]), {0: "n"})
    original = export_onnx(case.module, [example], outputs=("y",)).model
    files = {"float32": original}
    for method in dense_methods():
        files[method.name] = convert_dense(method, original, case.calibration).model
    files["onnxruntime.quantization"] = peer_dynamic(original)
    with ExitStack() as stack:
        programs: dict[str, Any] = {
            name: stack.enter_context(open_on_cpu(model)) for name, model in files.items()
        }
        for name in ("float32", "int8_static"):
            adapter, device = choose("openvino")
            program = compile_model(adapter, files[name], device, Options())
            programs[f"openvino {name}"] = stack.enter_context(program)
        if (peer := peer_nncf(original, case.calibration)) is not None:
            for name in ("float32", "int8_static"):
                programs[f"openvino alone {name}"] = OpenVinoAlone(read_openvino(files[name]))
            quantized, size = peer
            programs["openvino alone nncf"] = OpenVinoAlone(quantized)
            figure(f"{case.name} size", "nncf", size, "bytes", as_json)
        for name, program in programs.items():
            if name in files:
                figure(f"{case.name} size", name, len(files[name]), "bytes", as_json)
                figure(f"{case.name} smaller", name, len(original) / len(files[name]), "times", as_json)
            quality = case.quality(program.run({"x": case.rows})["y"])
            figure(f"{case.name} quality", name, quality, case.unit, as_json)
        for batch in BATCHES:
            measure_batch(case, batch, programs, as_json, seconds)


def measure_batch(case: Case, batch: int, programs: Mapping[str, Any], as_json: bool, seconds: float) -> None:
    """Print the latencies of one batch size, and the ratios to float32 and torch eager."""
    rows = np.ascontiguousarray(case.rows[:batch])
    tensor = torch.from_numpy(rows)

    def eager() -> object:
        with torch.inference_mode():
            return case.module(tensor).numpy()

    systems: dict[str, Callable[[], float]] = {
        name: calls_per_second(partial(program.run, {"x": rows}), seconds)
        for name, program in programs.items()
    }
    systems["torch eager"] = calls_per_second(eager, seconds)
    medians = show_in_turns(
        f"{case.name} batch {batch}", "calls/CPU s", systems, as_json=as_json, repeats=REPEATS
    )
    for name in programs:
        for base in ("float32", "torch eager"):
            ratio = medians[name] / medians[base]
            figure(f"{case.name} batch {batch} against {base}", str(name), ratio, "times", as_json)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="folder with adult.csv.gz")
    parser.add_argument("--quick", action="store_true", help="one epoch, short turns: checks that it runs")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    seconds = 0.01 if options.quick else SECONDS_PER_TURN
    cases = (click_case(options.root / "adult.csv.gz", 1 if options.quick else EPOCHS), tower_case())
    for case in cases:
        measure_case(case, options.json, seconds)


if __name__ == "__main__":
    main()
