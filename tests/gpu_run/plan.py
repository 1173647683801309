"""The steps of a run, the most telling first: what each runs, and what it reads in what was printed."""

import json
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

import machine
from place import Place
from steps import Failure, Shell, Skip, Step

SECTIONS = ["machine", "kernels", "backend", "links", "groups", "bench", "sanitizer", "parity", "loss", "peers",
            "equality"]
SHAPES = ["smollm2-135m", "llama-1b", "llama-8b", "llama-8b-q4_k_m", "llama-70b"]
PEER_SHAPES = SHAPES[:3]  # of bf16 weights; 70B does not fit as a whole
LOADER = "/lib64/ld-linux-x86-64.so.2"
PROMPT = "Why is the sky blue?"
DRAWN = ["--temp", "0.8", "--top-p", "0.95", "--seed", "7"]
SPREAD = "every way to spread a product*"
LOST = "a kernel that reads where nothing is*"
# A test of a few seconds takes a hundred times as long under a tool: enough cases to touch every path.
SANITIZED = {
    "gpu_gemm": "a row's product*,gate and up*,a residual*,the norm*",
    "gpu_sample": "the noise of a row*,a row gives the same*,a head of few tokens*",
    "gpu_attention": "both kernels agree with the reference on chains*,a result in bf16*,one recording*",
}
SANITIZER_TOOLS = ("memcheck", "racecheck", "synccheck")
QUERY = "name,driver_version,memory.total,memory.used,clocks.sm,clocks.max.sm,clocks.mem,power.limit,temperature.gpu"
# The emulated device knows nothing of time: its bench shows that the program works.
EMULATED_BENCH = ["--rows", "1,8", "--blas-rows", "1,8,70", "--contexts", "8", "--prefill", "64", "--times", "1",
                  "--spread", "65536", "--copy", "65536"]


@dataclass
class Choice:
    """What a run is asked for."""

    place: Place
    model: Path = None
    llama: Path = None  # folder of bench/build_llama_cpp --cuda
    shapes: list = field(default_factory=lambda: list(SHAPES))
    jobs: str = "1"

    @property
    def emulated(self) -> bool:
        return self.place.kind == "emulated"

    def the_model(self) -> Path:
        if self.model is None:
            raise Skip("no --model")
        return self.model


def last_line(text: str, pattern: str) -> str:
    """The last line in which `pattern` is found, without doctest's mark; empty if there is none."""
    found = [line.strip() for line in text.splitlines() if re.search(pattern, line)]
    return re.sub(r"^\[doctest\] ", "", found[-1]) if found else ""


def device_steps(choice: Choice) -> list:
    def card(shell: Shell) -> str:
        shell.run(["nvidia-smi"])
        return shell.run(["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader"]).strip().replace("\n", "; ")

    def libraries(shell: Shell) -> str:
        missing = []
        for program in choice.place.programs():
            _, text = shell.try_run([LOADER, "--list", program])
            missing += [f"{program.name}: {line.strip()}" for line in text.splitlines() if "not found" in line]
        if missing:
            raise Failure("\n".join([f"{len(missing)} libraries are not found: {missing[0]}", *missing[1:]]))
        shell.run([choice.place.program("paceline"), "--version"])
        sanitizer = machine.compute_sanitizer()
        blas = machine.library_folders()
        return (f"all found; cuBLAS: {blas[0] if blas else 'none'}; "
                f"compute-sanitizer: {sanitizer or 'none'}")

    return [Step("machine", "card", card, 60), Step("machine", "libraries", libraries, 60, needs_gpu=False)]


def doctest_step(choice: Choice, section: str, name: str, program: str, arguments: list, seconds: float) -> Step:
    def work(shell: Shell) -> str:
        text = shell.run([choice.place.program(program), *arguments])
        # On a device a whole program is skipped without a GPU, cuBLAS or code for the card.
        if "skipped: no " in text:
            raise Skip(last_line(text, "skipped: no "))
        counted = last_line(text, r"test cases:")
        if re.search(r"test cases:\s*0 \|", counted):
            raise Failure(f"{' '.join([program, *arguments])} ran no test")
        verdict = last_line(text, r"^wgmma: ")
        return f"{verdict}; {counted}" if verdict else counted

    return Step(section, name, work, seconds, needs_gpu=not choice.emulated)


def family_step(choice: Choice, name: str, seconds: float = 180) -> Step:
    """The tests of one family of kernels."""
    return doctest_step(choice, "kernels", f"gpu_{name}", f"gpu_{name}", [], seconds)


def links_bench_step(choice: Choice) -> Step:
    """Links between devices beside the raw copies and sends below them."""
    def work(shell: Shell) -> str:
        # Times of the emulated device say nothing: enough to see that the program works.
        few = ["--times", "3", "--largest", "65536"] if choice.emulated else []
        text = shell.run([choice.place.program("bench_links"), *few])
        if "skipped: no device" in text:
            raise Skip(last_line(text, "skipped: no device"))
        (shell.logs / "bench_links.md").write_text(text, encoding="utf-8")
        missing = last_line(text, "^nccl: skipped")
        return "see bench_links.md" + (f"; {missing}" if missing else "")

    return Step("links", "bench_links", work, 120, needs_gpu=not choice.emulated)


def groups_steps(choice: Choice) -> list:
    """A stage that several GPUs share: time of a barrier, a layer and a pass, and the text of one GPU."""
    def two_gpus() -> None:
        count = 2 if choice.emulated else machine.gpu_count()
        if count < 2:
            raise Skip(f"1 step needs two GPUs, {count} here")

    def times(shell: Shell) -> str:
        two_gpus()
        shape = "tiny" if choice.emulated else "llama-8b"
        few = ["--rows", "1,8", "--contexts", "8", "--prefill", "0", "--times", "1"] if choice.emulated else []
        text = shell.run([choice.place.program("paceline_cuda_bench"), "--shape",
                          choice.place.root / f"configs/shapes/{shape}.toml", "--only", "groups", "--group", "2", *few])
        (shell.logs / "groups.md").write_text(text, encoding="utf-8")
        return "see groups.md"

    def text(shell: Shell) -> str:
        two_gpus()
        model, said = choice.the_model(), []
        variables = {"PACELINE_EMULATED_DEVICES": "2"} if choice.emulated else {}
        for device in ("cuda:0", "cuda:0,cuda:1"):
            said.append(shell.run([choice.place.program("paceline"), "run", "-m", model, "--device", device, "-p",
                                   PROMPT, "-n", "64", "--quiet", *DRAWN], **variables))
        if said[0] != said[1]:
            raise Failure("two GPUs say something else than one")
        return "equal texts"

    needs = not choice.emulated
    return [Step("groups", "barrier, layer, pass", times, 180, needs_gpu=needs),
            Step("groups", "equal text", text, 120, needs_gpu=needs)]


def kernel_steps(choice: Choice) -> list:
    spread = doctest_step(choice, "kernels", "equal bits, however spread", "gpu_gemm", [f"--test-case={SPREAD}"], 120)
    steps = [spread, *[family_step(choice, name) for name in ("gemm", "attention", "rows", "sample")],
             doctest_step(choice, "backend", "gpu_backend", "gpu_backend", [], 300)]
    if not choice.emulated:
        steps.append(family_step(choice, "wgmma", 60))
        steps.append(doctest_step(choice, "links", "gpu_links", "gpu_links", [], 180))
    steps.append(links_bench_step(choice))
    return [*steps, family_step(choice, "copy", 60)]


def goals_of(text: str) -> str:
    """The rows of the goals' table in one line."""
    rows = re.findall(r"^\| ([^|]+) \|[^|]*\|[^|]*\| ([^|]+) \| (yes|no) \|$", text, re.M)
    return "; ".join(f"{what.strip()}: {got} ({'reached' if word == 'yes' else 'NOT reached'})"
                     for what, got, word in rows)


def bench_step(choice: Choice, section: str, shape: str, sections: str, seconds: float) -> Step:
    """One call of the bench; its tables, figures and cost table lie beside the logs."""
    stem = f"{shape}.{section}-{sections.replace(',', '-')}"[:80]

    def work(shell: Shell) -> str:
        files = {end: shell.logs / f"{stem}.{end}" for end in ("md", "json", "tsv")}
        arguments = ["--shape", choice.place.root / f"configs/shapes/{shape}.toml", "--only", sections,
                     "--json", files["json"]]
        if "costs" in sections:
            arguments += ["--costs", files["tsv"]]
        if "upload" in sections:
            arguments += ["--upload", choice.the_model()]
        if choice.emulated:
            arguments += EMULATED_BENCH
        code, text = shell.try_run([choice.place.program("paceline_cuda_bench"), *arguments])
        files["md"].write_text(text, encoding="utf-8")
        if code != 0:
            said = [line for line in text.splitlines() if line.startswith("paceline_cuda_bench: ")]
            raise Failure("\n".join([said[0] if said else f"exit code {code}", *said[1:],
                                     f"log {shell.log.name}"]))
        return goals_of(text) or f"see {files['md'].name}"

    return Step(section, f"{shape}: {sections}", work, seconds, needs_gpu=not choice.emulated)


def early_bench_steps(choice: Choice) -> list:
    if choice.emulated:
        return [bench_step(choice, "bench", "tiny", "copy,kernels,batches", 300)]
    steps = []
    for shape in ("llama-8b", "llama-8b-q4_k_m", "smollm2-135m"):
        if shape in choice.shapes:
            steps.append(bench_step(choice, "bench", shape, "copy,kernels,batches,drawing,goals", 180))
    return steps


def late_bench_steps(choice: Choice) -> list:
    blas = family_step(choice, "blas")
    if choice.emulated:
        return [blas, bench_step(choice, "bench", "tiny", "ladder,blas,costs", 300)]
    wanted = [("llama-8b", "ladder,blas", 240), ("llama-1b", "copy,kernels,batches,drawing,goals", 180),
              ("llama-8b-q4_k_m", "ladder", 240), ("llama-8b", "costs", 240),
              ("smollm2-135m", "ladder,blas,costs", 240), ("llama-1b", "costs", 240),
              ("llama-70b", "kernels,costs", 300)]
    steps = [blas, *[bench_step(choice, "bench", *one) for one in wanted if one[0] in choice.shapes]]
    if choice.model is not None:
        steps.append(bench_step(choice, "bench", "smollm2-135m", "upload", 120))
    return steps


def sanitizer_step(choice: Choice, tool: str, program: str) -> Step:
    def work(shell: Shell) -> str:
        sanitizer = machine.compute_sanitizer()
        if not sanitizer:
            raise Skip("no compute-sanitizer")
        code, text = shell.try_run([sanitizer, "--tool", tool, "--error-exitcode", "9",
                                    choice.place.program(program), f"--test-case={SANITIZED[program]}"])
        # It needs a debugging interface that some machines do not lend.
        refused = last_line(text, r"(?i)not supported|unable to (find|attach)|initialization failed")
        if code != 0 and refused:
            raise Skip(f"compute-sanitizer does not work here: {refused}")
        if code != 0:
            raise Failure(f"exit code {code}: {last_line(text, r'SUMMARY').lstrip('= ')}; log {shell.log.name}")
        return last_line(text, r"(ERROR|RACECHECK) SUMMARY").lstrip("= ")

    return Step("sanitizer", f"{tool} {program}", work, 240)


def parity_steps(choice: Choice) -> list:
    same = ["--backend", "cuda", "--dtype", "f32", "--kv", "f32"]

    def fixture(stem: Path) -> Step:
        def work(shell: Shell) -> str:
            plain = stem.parent / stem.name.removesuffix(".lora")
            merged = ["--lora", f"{stem}.safetensors"] if plain != stem else []
            text = shell.run([choice.place.program("paceline_parity"), "logits", "-m", f"{plain}.gguf", *merged,
                              "--golden", stem, *same, "--tolerance", "1e-3"])
            return last_line(text, "largest relative error").split("error ", 1)[-1]
        return Step("parity", stem.name, work, 120, needs_gpu=not choice.emulated)

    def whole(shell: Shell) -> str:
        text = shell.run([choice.place.program("paceline_parity"), "pair", "-m", choice.the_model(), "--backend",
                          "cuda", "-t", choice.jobs, "--dtype", "f32", "--kv", "f32", "--text",
                          choice.place.root / "LICENSE"])
        return last_line(text, "largest relative error").split("CPU ", 1)[-1]

    folder = choice.place.root / "tests/fixtures/models"
    stems = [Path(str(file).removesuffix(".golden.json")) for file in sorted(folder.glob("*.golden.json"))]
    return [*[fixture(stem) for stem in stems],
            Step("parity", "the model, f32", whole, 300, needs_gpu=not choice.emulated)]


def peer_step(choice: Choice, shape: str) -> Step:
    def work(shell: Shell) -> str:
        llama = ["--llama", choice.llama] if choice.llama else []
        # Peers bring libraries of their own: no other cuBLAS in front of theirs.
        paths = {"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
        code, text = shell.try_run([sys.executable, "-B", choice.place.root / "bench/cuda/peers.py", "--shape",
                                    choice.place.root / f"configs/shapes/{shape}.toml", "--out", shell.logs,
                                    "--bench", choice.place.program("paceline_cuda_bench"), *llama], **paths)
        if code == 77:
            raise Skip("no peer: " + text.strip().splitlines()[-1])
        if code != 0:
            raise Failure(f"peers.py: exit code {code}; log {shell.log.name}")
        (shell.logs / f"{shape}.peers.md").write_text(text, encoding="utf-8")
        ratios = re.findall(r"^\| (batch of \d+ after 512|prefill of \d+) \|.*?\|.*?\| (.+?) \|.*?\| (.+?) \|$",
                            text, re.M)
        said = [f"{what}: {torch.strip('*')}, {theirs.strip('*')}" for what, torch, theirs in ratios]
        return "; ".join(["rates over transformers', llama.cpp's", *said,
                          *re.findall(r"^\w+ is left out: .+$", text, re.M)])

    return Step("peers", shape, work, 580)


def equality_steps(choice: Choice) -> list:
    def greedy(shell: Shell) -> str:
        ids = {}
        for device in ("cpu", "cuda:0"):
            file = shell.log.with_suffix(f".{device.replace(':', '')}.ids")
            shell.run([choice.place.program("paceline"), "run", "-m", choice.the_model(), "--device", device,
                       "--dtype", "f32", "--kv-dtype", "f32", "-p", PROMPT, "-n", "128", "--ids", file])
            ids[device] = re.split(r"[,\s]+", file.read_text(encoding="utf-8").strip())
        at = next((i for i, (a, b) in enumerate(zip(*ids.values())) if a != b), None)
        if at is None and len(set(map(len, ids.values()))) == 1:
            return f"{len(ids['cpu'])} greedy ids equal"
        # After a near-tie texts differ: whether it is one, `parity` says row by row on one text.
        return f"equal for {at} ids, then different, of {len(ids['cpu'])} (see parity for near-ties)"

    def checked(name: str, words: list, prompts: list = ()) -> Step:
        def work(shell: Shell) -> str:
            given = []
            if prompts:
                file = shell.log.with_suffix(".jsonl")
                file.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts), encoding="utf-8")
                given = ["--prompts", file]
            device = [] if "--config" in words else ["--device", "cuda:0"]
            code, text = shell.try_run([choice.place.program("paceline"), "check", "-m", choice.the_model(), *device,
                                        *words, *given])
            few_layers = last_line(text, "are empty for a model of|leaves nothing to skip")
            if code == 2 and few_layers:
                raise Skip(few_layers.removeprefix("paceline check: "))
            if code != 0:
                raise Failure(f"paceline check: exit code {code}; log {shell.log.name}\n{text[-2000:]}")
            return last_line(text, r"^equality").removeprefix("equality").strip()
        return Step("equality", name, work, 180, needs_gpu=not choice.emulated)

    def method(name: str) -> list:
        words = ["--method", name, "--first", "4", "-n", "48"]
        return [checked(name, words), checked(f"{name}, drawn", [*words, "--requests", "4", *DRAWN])]

    schema = ["--json-schema", choice.place.root / "tests/cli/exactness_schema.json", "--requests", "4",
              "--first", "8", "-n", "96"]
    retaining = choice.place.root / "tests/gpu_run/retaining.toml"
    # Configurations by the names of methods; those for a CPU's cores are none.
    names = [config.stem for config in sorted((choice.place.root / "configs").glob("*.toml"))]
    return [Step("equality", "greedy, GPU and CPU", greedy, 180, needs_gpu=not choice.emulated),
            checked("log probabilities", ["--method", "prompt-lookup+draft", "--requests", "4", "--first", "8", "-n", "48",
                                          "--logprobs", "5"]),
            checked("log probabilities, drawn", ["--method", "fold", "--requests", "4", "--first", "8", "-n", "48",
                                                 "--logprobs", "20", "--kills", "2", *DRAWN]),
            checked("JSON by a schema", ["--method", "prompt-lookup+draft", *schema]),
            checked("JSON by a schema, drawn", ["--method", "pearl", "--kills", "2", *schema, *DRAWN]),
            checked("retained hidden states", ["--config", retaining, "--requests", "4", "--first", "8", "-n", "64",
                                               "--kills", "3"]),
            checked("prompts that begin alike", ["--method", "prompt-lookup", "--requests", "16", "-n", "24"],
                    [f"{PROMPT} " * 40 + f"Answer in {words} words." for words in range(1, 17)]),
            checked("a short KV cache", ["--method", "fold", "--requests", "16", "-n", "96", "-c", "512",
                                         "--kv-memory", "16M", *DRAWN]),
            checked("stages killed", ["--method", "fold", "--requests", "4", "--first", "8", "-n", "64",
                                      "--kills", "3"]),
            *[step for name in names if not name.startswith("cpu-") for step in method(name)]]


def steps_of(choice: Choice) -> list:
    """All steps, in their order."""
    sanitized = [(tool, program) for program in SANITIZED for tool in SANITIZER_TOOLS]
    first_sanitized = ("memcheck", "gpu_gemm")
    steps = [*device_steps(choice), *kernel_steps(choice), *groups_steps(choice),
             *early_bench_steps(choice),
             sanitizer_step(choice, *first_sanitized), *late_bench_steps(choice),
             doctest_step(choice, "loss", "a lost device", "gpu_backend", ["--no-skip", f"--test-case={LOST}"], 120)
             if not choice.emulated else None,
             *parity_steps(choice),
             *[sanitizer_step(choice, *one) for one in sanitized if one != first_sanitized]]
    steps += [peer_step(choice, shape) for shape in PEER_SHAPES if shape in choice.shapes]
    steps += equality_steps(choice)
    return [step for step in steps if step is not None]
