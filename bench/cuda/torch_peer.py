#!/usr/bin/env python3
"""PyTorch with transformers on a shape of configs/shapes: the same batches as paceline_cuda_bench times.

    bench/cuda/torch_peer.py --shape configs/shapes/llama-8b.toml --json 8b.torch.json
    bench/cuda/torch_peer.py --shape configs/shapes/tiny.toml --device cpu --threads 1   # that it works

Needs torch and transformers (bench/cuda/requirements.txt), no file and no network: the weights, bf16, are
random numbers made on the device. A batch is one forward of n tokens after a static cache of C of them, with the
greedy token of every row; the cache is as long as the case needs and no longer. Three ways of running
it are measured, and the best is what the figures tell:

    compiled   torch.compile(mode="reduce-overhead", dynamic=False) of forward and argmax
    recorded   the plain forward, recorded once as a CUDA graph
    eager      the plain forward; only where both others failed, or when asked for

"wall" is what a caller waits for tokens on the host; "device" is the time of a batch among many that are
launched one after the other. Compiling takes long: the prefill is compiled first, then batches in the order
of --cases, as long as --seconds lasts; what was left out says so. What fails is named in the table, and
the run goes on. The mask of a batch is made once, outside of what is measured.
"""

import argparse
import os
import statistics
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from peer_report import (Report, Shape, add_card_options, card, microseconds, read_shape,  # noqa: E402: as above
                         share_of)

try:
    import torch
    import transformers
except ImportError as missing:
    torch, transformers, MISSING = None, None, str(missing)
else:
    MISSING = ""

# The most telling first: what does not fit into --seconds is left out from the end.
CASES = "1@512,8@512,16@512,1@64,1@2048,8@2048,16@2048,8@64,16@64"
WAYS = ("compiled", "recorded", "eager")
CACHE_STEP = 16  # a mask of other lengths is copied by the attention kernels


def build(shape: Shape, device):
    """The model in bf16, random weights made on the device."""
    kinds = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}
    kind = kinds[shape.family]
    more = {"attention_bias": shape.qkv_bias} if shape.family != "qwen2" else {}
    config = getattr(transformers, kind + "Config")(
        hidden_size=shape.dim, num_hidden_layers=shape.layers, num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads, head_dim=shape.head_dim, intermediate_size=shape.ffn_dim,
        vocab_size=shape.vocab_size, max_position_embeddings=shape.context_length,
        rms_norm_eps=shape.norm_epsilon, tie_word_embeddings=shape.tied_embeddings, use_cache=True,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_base},
        bos_token_id=None, eos_token_id=None, pad_token_id=None, attn_implementation="sdpa", **more)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            model = getattr(transformers, kind + "ForCausalLM")(config)
    finally:
        torch.set_default_dtype(before)
    return model.eval()


class RepeatedBatch:
    """A model, and a batch of `rows` tokens after `context` others that can be repeated."""

    def __init__(self, model, device, rows: int, context: int):
        self.model, self.device, self.rows, self.context = model, device, rows, context
        length = -(-(context + rows) // CACHE_STEP) * CACHE_STEP
        self.cache = transformers.StaticCache(config=model.config, max_cache_len=length)
        vocabulary = model.config.vocab_size
        self.ids = self.tokens(context, context + rows, vocabulary)
        self.positions = torch.arange(context, context + rows, device=device).unsqueeze(0)
        # Which keys a row sees. Made here: the plain forward would ask the device for the cache's length.
        self.mask = (torch.arange(length, device=device) <= self.positions[0].unsqueeze(1))[None, None]
        # By the plain forward: the cache has to exist before anything is compiled.
        model(input_ids=self.tokens(0, max(1, context), vocabulary), past_key_values=self.cache, use_cache=True,
              logits_to_keep=1)
        self.lengths = [layer.cumulative_length for layer in self.cache.layers]
        self.context_lengths = [torch.full_like(length, context) for length in self.lengths]
        self.rewind()
        self.expected = self.forward().tolist()[0]

    def tokens(self, first: int, last: int, vocabulary: int):
        """Any will do, as long as they are spread over the embedding table."""
        places = torch.arange(first, last, device=self.device, dtype=torch.long)
        return ((places * 7919 + 31) % vocabulary).unsqueeze(0)

    def rewind(self) -> None:
        """Back to `context` tokens: one kernel for the lengths of all layers."""
        torch._foreach_copy_(self.lengths, self.context_lengths)

    def forward(self):
        logits = self.model(input_ids=self.ids, position_ids=self.positions, attention_mask=self.mask,
                            past_key_values=self.cache, use_cache=True).logits
        return logits.argmax(dim=-1)

    def compiled(self):
        return torch.compile(self.forward, mode="reduce-overhead", dynamic=False)

    def recorded(self):
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(3):
                self.rewind()
                self.forward()
        beside.synchronize()
        self.rewind()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            drawn = self.forward()

        def replay():
            graph.replay()
            return drawn
        return replay

    def eager(self):
        return self.forward


class Clock:
    """Medians on a device: of what a caller waits, and of what the device takes."""

    def __init__(self, device):
        self.on_gpu = device.type == "cuda"

    def finish(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    def wall(self, batch: RepeatedBatch, once, least: int = 5, seconds: float = 0.3) -> float:
        times = []
        begin = time.perf_counter()
        while len(times) < least or (time.perf_counter() - begin < seconds and len(times) < 200):
            batch.rewind()
            self.finish()
            at = time.perf_counter()
            once().tolist()
            times.append(time.perf_counter() - at)
        return statistics.median(times)

    def behind_each_other(self, batch: RepeatedBatch, once, count: int = 20, rounds: int = 5) -> float:
        """Seconds of one of `count` batches; the rewinding between them, one small kernel, is in it."""
        if not self.on_gpu:
            return 0.0
        times = []
        for _ in range(rounds):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(count):
                batch.rewind()
                once()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / 1e3 / count)
        return statistics.median(times)


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"[:160].replace("|", "/")


class Peer:
    def __init__(self, options, report: Report):
        self.options, self.report = options, report
        self.device = torch.device(options.device)
        self.clock = Clock(self.device)
        self.shape = read_shape(options.shape)
        self.begin = time.monotonic()
        self.compiling = 0.0  # seconds that the last compiled case took
        self.failed: dict[str, str] = {}  # what went wrong, by way

    def ways(self) -> list[str]:
        return [way for way in self.options.ways if way != "recorded" or self.device.type == "cuda"]

    def time_left_for_compiling(self) -> bool:
        return time.monotonic() - self.begin + 1.2 * self.compiling < self.options.seconds

    def measure(self, way: str, batch: RepeatedBatch) -> tuple[float, float, int]:
        """Seconds of a batch: wall, and of the device (0 without one); tokens as the plain forward draws them."""
        begin = time.monotonic()
        if way == "compiled":
            torch._dynamo.reset()  # of the case before: it would count as a recompilation
        once = getattr(batch, way)()
        for _ in range(4):  # compile, warm up, record, replay
            batch.rewind()
            tokens = once().tolist()[0]
        taken = self.clock.wall(batch, once), self.clock.behind_each_other(batch, once)
        if way == "compiled":
            self.compiling = time.monotonic() - begin
            skips = torch._dynamo.utils.counters["inductor"]["cudagraph_skips"]
            if self.clock.on_gpu and skips:
                self.failed["compiled, CUDA graphs"] = f"{skips} skipped: launched kernel by kernel"
        return *taken, sum(map(int.__eq__, tokens, batch.expected))

    def batch(self, rows: int, context: int) -> list[list[str]]:
        batch = RepeatedBatch(self.model, self.device, rows, context)
        at, found, lines = f".{rows}.{context}", {}, []
        ways = self.ways()
        for way in ways:
            if way == "eager" and found and not self.options.eager:
                continue
            line = [str(rows), str(context), way]
            if way == "compiled" and not self.time_left_for_compiling():
                lines.append([*line, "left out: no time", "", "", "", "", ""])
                continue
            try:
                wall, device, same = found[way] = self.measure(way, batch)
            except Exception as error:  # anything may come out of a compiler
                self.failed.setdefault(way, first_line(error))
                lines.append([*line, "failed", "", "", "", "", ""])
                continue
            read = self.shape.batch_bytes(rows, context) / (device or wall)
            lines.append([*line, microseconds(wall), microseconds(device) if device else "-",
                          f"{rows / wall:.0f}", f"{read / 1e9:.0f}", share_of(read, self.options.bandwidth),
                          f"{same} of {rows}"])
            self.report.figures[f"{way}.batch.wall.seconds{at}"] = wall
        if found:
            wall, device = (min(times[i] for times in found.values()) for i in (0, 1))
            self.report.figures["batch.wall.seconds" + at] = wall
            if device:
                self.report.figures["batch.device.seconds" + at] = device
                if self.options.bandwidth:
                    share = self.shape.batch_bytes(rows, context) / device / self.options.bandwidth
                    self.report.figures["batch.share" + at] = share
        return lines

    def cases(self) -> list[tuple[int, int]]:
        return [(int(rows), int(context)) for rows, context in
                (case.split("@") for case in self.options.cases.split(","))]

    def batches_table(self) -> None:
        rows = []
        for case in self.cases():
            rows += self.batch(*case)
            self.report.write(self.options.json)  # a run that is cut short has left what it had
        self.report.add("Batches with greedy tokens",
                        ["rows", "context", "way", "wall µs", "device µs", "tokens/s wall", "GB/s", "of a copy",
                         "tokens as eager"], rows)
        figures = self.report.figures
        for count, context in self.cases():
            one = figures.get(f"batch.wall.seconds.1.{context}")
            if one and f"batch.wall.seconds.{count}.{context}" in figures:
                figures[f"batch.wall.ratio.{count}.{context}"] = figures[f"batch.wall.seconds.{count}.{context}"] / one

    def prefill_ways(self, tokens):
        def with_cache():
            cache = transformers.StaticCache(config=self.model.config, max_cache_len=tokens.shape[1])
            return self.model(input_ids=tokens, past_key_values=cache, use_cache=True, logits_to_keep=1).logits

        def without_cache():
            return self.model(input_ids=tokens, use_cache=False, logits_to_keep=1).logits

        yield "eager, into a static cache", with_cache
        if "compiled" in self.options.ways:
            torch._dynamo.reset()
            yield "compiled, keys and values not kept", torch.compile(without_cache, dynamic=False)

    def prefill_table(self, count: int) -> None:
        """All of a prompt at once, a head for its last token alone."""
        vocabulary = self.shape.vocab_size
        tokens = (torch.arange(count, device=self.device) * 7919 + 31).remainder(vocabulary).unsqueeze(0)
        operations, rows, found = self.shape.prefill_operations(count), [], []
        for way, once in self.prefill_ways(tokens):
            if way.startswith("compiled") and not self.time_left_for_compiling():
                rows.append([way, "left out: no time", "", "", ""])
                continue
            begin = time.monotonic()
            try:
                seconds = self.prefill_seconds(once)
            except Exception as error:  # anything may come out of a compiler
                self.failed.setdefault("prefill, " + way, first_line(error))
                rows.append([way, "failed", "", "", ""])
                continue
            if way.startswith("compiled"):
                self.compiling = time.monotonic() - begin
            found.append(seconds)
            rows.append([way, f"{1e3 * seconds:.2f}", f"{count / seconds:.0f}", f"{operations / seconds / 1e12:.1f}",
                         share_of(operations / seconds, self.options.flops)])
        self.report.add(f"Prefill of {count} tokens", ["way", "wall ms", "tokens/s", "TFLOP/s", "of the data sheet"],
                        rows)
        if found:
            self.report.figures |= {f"prefill.wall.seconds.{count}": min(found), "prefill.operations": operations}
        if found and self.options.flops:
            share = operations / min(found) / self.options.flops
            self.report.figures |= {f"prefill.share.{count}": share, "prefill.share": share}

    def prefill_seconds(self, once) -> float:
        times = []
        for _ in range(3 + 7):
            self.clock.finish()
            at = time.perf_counter()
            once()
            self.clock.finish()
            times.append(time.perf_counter() - at)
        return statistics.median(times[3:])

    def run(self) -> None:
        report = self.report
        on_gpu = self.device.type == "cuda"
        report.begin(on_gpu, self.device.index or 0)
        report.say("versions", f"Python {sys.version.split()[0]}, torch {torch.__version__}, "
                   f"transformers {transformers.__version__}, CUDA {torch.version.cuda}")
        begin = time.monotonic()
        self.model = build(self.shape, self.device)
        self.clock.finish()
        numbers = sum(parameter.numel() for parameter in self.model.parameters())
        report.say("shape", f"{self.options.shape} ({self.shape.name}), {type(self.model).__name__}, "
                   f"{numbers / 1e6:.1f} million weights in bf16, made in {time.monotonic() - begin:.1f} s")
        if on_gpu:
            report.say("device", torch.cuda.get_device_name(self.device))
        with torch.inference_mode(False), torch.no_grad():
            if self.options.prefill > 0:
                self.prefill_table(self.options.prefill)
            self.batches_table()
        for way, why in self.failed.items():
            report.say(f"failed: {way}", why)
        report.say("seconds", f"{time.monotonic() - self.begin:.0f}")
        if on_gpu:
            report.say("card afterwards", card(self.device.index or 0))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", type=Path, required=True)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--threads", type=int, help="of torch on the CPU")
    parser.add_argument("--cases", default=CASES, help="ROWS@CONTEXT, the most important first")
    parser.add_argument("--ways", type=lambda text: text.split(","), default=list(WAYS))
    parser.add_argument("--eager", action="store_true", help="measure the plain forward too where another way works")
    parser.add_argument("--prefill", type=int, default=2048, help="tokens; 0: none")
    parser.add_argument("--seconds", type=float, default=150, help="nothing is compiled after so many")
    add_card_options(parser)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if MISSING:
        print(f"torch_peer: {MISSING}; bench/cuda/requirements.txt has what it needs", file=sys.stderr)
        return 77
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        print("torch_peer: this torch sees no GPU; --device cpu shows that the script works", file=sys.stderr)
        return 77
    if unknown := set(options.ways) - set(WAYS):
        parser.error(f"--ways: {', '.join(sorted(unknown))}; possible are {', '.join(WAYS)}")
    if options.threads:
        torch.set_num_threads(options.threads)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.filterwarnings("ignore")
    torch.set_float32_matmul_precision("high")
    report = Report()
    Peer(options, report).run()
    report.write(options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
