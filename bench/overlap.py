#!/usr/bin/env python3
"""What a pipeline really does against what the simulation says it would do.

    bench/overlap.py [--methods pearl,fold,speculative] [--rounds 5] [--first 8] [--costs FILE]

For each method and round: `paceline check` on the project's prompts (real processes, real time),
then `paceline simulate` of the same prompts with costs that were measured on this machine while
its neighbours computed (--measure-costs; written once, to --costs). Stages that draft share one
process and those of the target another, so that there are no more processes than cores. Acceptance
comes from the same model and the same text in both.

Two ratios, each with a promise of 0.9. *Against the table*: what the processes lose, together with
what the host did between the minute of the table and that of the run. *Against the run's own
costs*: the table is scaled, the target's rows and the draft's each by one factor, until a forward
keeps its process busy for as long as it did in the run, and simulated again. What is left is what
the pipeline itself loses: wake-ups, messages, work that is thrown away too late. Overlap is the
share of the time in which draft and target both computed, from the trace of each.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import prompt_sets
import sweep_configs
from cache_folder import DEMO_MODEL

ROOT = pathlib.Path(__file__).resolve().parent.parent


def paceline(options, *words):
    """The JSON that a command wrote."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [str(options.paceline), *map(str, words), "-m", str(options.model), "--json",
                   out.name]
        done = subprocess.run(command, capture_output=True, text=True)
        text = pathlib.Path(out.name).read_text()
        if done.returncode != 0 or not text:
            sys.exit(f"{' '.join(command)}\n{done.stderr[-2000:]}{done.stdout[-2000:]}")
        return json.loads(text)


def measure_costs(options):
    if options.costs.exists():
        return
    print(f"measuring costs into {options.costs}", file=sys.stderr)
    subprocess.run([options.paceline, "simulate", "--measure-costs", options.costs, "-m",
                    options.model, "--short-lists", options.short_lists], check=True)


def options_of():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    prompt_sets.add_options(parser)
    parser.add_argument("--paceline", default=ROOT / "build/release/paceline", type=pathlib.Path)
    parser.add_argument("--model", default=str(DEMO_MODEL))
    parser.add_argument("--methods", default="speculative,pearl,fold")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1, help="cores of each process")
    parser.add_argument("--neighbours", type=int, default=1,
                        help="processes that compute beside each at the same time")
    parser.add_argument("--costs", type=pathlib.Path, default=pathlib.Path("costs.tsv"))
    parser.add_argument("--short-lists", default="0,4096,6144", help="of the heads, when measuring")
    parser.add_argument("--json", type=pathlib.Path)
    return parser.parse_args()


def two_processes(method, program, folder):
    """A file with the method's configuration over at most two processes."""
    text = sweep_configs.text_of(method, program)
    stages = [t for t in sweep_configs.tables_of(text) if t.startswith("[[stage]]")]
    for stage in stages:
        role = re.search(r'(?m)^role\s*=\s*"([^"]+)"', stage).group(1)
        process = "target" if role in sweep_configs.TARGET_ROLES else "draft"
        shared = re.sub(r"(?m)^process.*\n", "", stage).rstrip()
        text = text.replace(stage, f'{shared}\nprocess = "{process}"\n\n')
    path = pathlib.Path(folder) / f"{method}.toml"
    path.write_text(text, encoding="utf-8")
    return path


def busy_per_forward(run):
    """Seconds for which a forward kept its process busy, of the target and of the draft."""
    figures = run["figures"]
    busy = {p["name"]: p["busy"] * figures["seconds"] for p in figures["processes"]}
    draft = busy.get("draft", 0.0) / max(1, figures["draft_forwards"])
    return busy["target"] / max(1, figures["target_forwards"]), draft


def scaled(table, target, factors):
    """The cost table with the target's rows and those of all other models times a factor each."""
    lines = []
    for line in table.read_text(encoding="utf-8").splitlines():
        fields = line.split("\t")
        if fields[0] in ("layers", "head"):
            own = fields[1].startswith(target + ":")
            fields[-1] = f"{float(fields[-1]) * factors[0 if own else 1]:.9f}"
        lines.append("\t".join(fields))
    return "\n".join(lines) + "\n"


def ratio_to_own_costs(options, what, run, simulated, folder):
    """Tokens/s of a run over those of a simulation whose forwards take as long as the run's."""
    factors = [1.0, 1.0]
    path = pathlib.Path(folder) / "scaled.tsv"
    for _ in range(3):  # a factor moves the mixture of batches a little, so it is taken again
        for i, (real, told) in enumerate(zip(busy_per_forward(run), busy_per_forward(simulated))):
            factors[i] *= real / told if told > 0 else 1.0
        path.write_text(scaled(options.costs, pathlib.Path(options.model).stem, factors),
                        encoding="utf-8")
        simulated = simulate(options, what, path)
    return run["tokens_per_second"] / simulated["tokens_per_second"]


def simulate(options, what, costs):
    return paceline(options, "simulate", *what, "--costs", costs, "--device-threads",
                    options.threads, "--busy-neighbours", options.neighbours)[0]


def spread(values, digits=2):
    return f"{statistics.median(values):.{digits}f} [{min(values):.{digits}f}..{max(values):.{digits}f}]"


def main():
    options = options_of()
    measure_costs(options)
    sets, folder = prompt_sets.chosen(options)
    rows = []
    print("| set | method | measured tokens/s | simulated | against the table [min..max] "
          "| against the run's own costs | acceptance length, both | overlap, both |\n"
          "|---|---|---:|---:|---:|---:|---:|---:|")
    with folder, tempfile.TemporaryDirectory() as work:
        for name, file in sets.items():
            for method in options.methods.split(","):
                what = ["--config", two_processes(method, options.paceline, work), "--prompts", file, "-n",
                        options.n]
                simulated = simulate(options, what, options.costs)
                real = [paceline(options, "check", *what) for _ in range(options.rounds)]
                own = [ratio_to_own_costs(options, what, run, simulated, work) for run in real]
                rows.append({"set": name, "method": method, "simulated": simulated, "real": real,
                             "against_own_costs": own})
                speeds = [r["tokens_per_second"] for r in real]
                told = simulated["tokens_per_second"]
                lengths = [r["figures"]["mean_acceptance_length"] for r in real]
                print(f"| {name} | {method} | {statistics.median(speeds):.1f} | {told:.1f} "
                      f"| {spread([s / told for s in speeds])} | {spread(own)} "
                      f"| {statistics.median(lengths):.2f} / "
                      f"{simulated['figures']['mean_acceptance_length']:.2f} "
                      f"| {100 * statistics.median(r['overlap']['both'] for r in real):.0f} % / "
                      f"{100 * simulated['overlap']['both']:.0f} % |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
