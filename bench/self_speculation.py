#!/usr/bin/env python3
"""Targets that draft for themselves: LayerSkip, AdaSPEED, Draft & Verify, SWIFT and CLaSp.

    bench/self_speculation.py counts --costs costs.tsv --out counts.tsv --humaneval HumanEval.jsonl.gz
            --mt-bench mt_bench_question.jsonl --gsm8k gsm8k-heldout.jsonl --first 2 -n 96
    bench/self_speculation.py times --out times.tsv ...the same prompts... [--rounds 3]
    bench/self_speculation.py auto-off --costs costs.tsv --out auto-off.tsv ...the same prompts... -n 256
    bench/self_speculation.py sets --folder bench/results ...the same prompts...
    bench/self_speculation.py searched --costs costs.tsv --out searched.tsv ...the same prompts...
    bench/self_speculation.py crossed --costs costs.tsv --out crossed.tsv ...the same prompts... --stories 8
    bench/self_speculation.py stream --costs costs.tsv --out stream.tsv ...the same prompts... --stories 8
    bench/self_speculation.py adadecode --costs costs.tsv --out adadecode.tsv ...the same prompts...

counts    what does not depend on the machine: M, the tokens of a target forward; alpha, the accepted share
          of the drafted tokens; layer-rows, the layers that rows went through (drafts, verification and
          optimisation), for each token; for each setting of self_speculation_cases.py. From `paceline
          simulate` with the real model: its clock is not used, the cost table may be any of the model.
          Every answer is compared with plain decoding's. Drafts are never switched off, and the search
          and the programme may take as much time as drafts and verification (optimise_share = 1).
times     tokens/s over plain decoding and over constant D (the first row), of the rows of timed(). Every
          run is one answer of `paceline check`, plain decoding of the same prompt right before it; the
          methods take turns prompt by prompt, so a ratio's two parts are seconds apart. With and without
          auto_off; the optimiser keeps the share that configs/ gives it
auto-off  what auto_off costs: the rows of timed() in simulated time, each answer in a process of its own, which
          begins without knowing what drafts gain. The cost table is the clock, so nothing else on the machine
          matters. lost: time over plain decoding's, in tokens of plain decoding
sets      which sub-layers the model does without: CLaSp's programme, uniform sets and SWIFT's search on
          texts that are decoded once (bench/skip_sets), as skip-sets-*.tsv
searched, crossed, stream, adadecode: tables of the papers, in simulated time by --costs; the head of
          self_speculation_studies.py says which

--temp and --top-p draw instead of decoding greedily. --lora FILE is handed to the program: a target that
was trained to exit early. bench/charts.py draws the tables as charts. --quick: four cases, one prompt, 24 tokens.
"""

import argparse
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile

import prompt_sets
import self_speculation_cases as cases
import self_speculation_studies as studies
from cache_folder import DEMO_MODEL
from methods import ROOT, spread
from self_speculation_runs import jobs_of, layer_rows, settings_text, simulate, words_of, write_table

COUNT_COLUMNS = ["section", "varied", "method", "settings", "M", "alpha", "drafted_per_round",
                 "layer_rows_per_token", "optimise_rows_share", "equal"]
AUTO_OFF_COLUMNS = ["method", "settings", "tokens", "drafted", "lost", "times_plain"]
TIME_COLUMNS = ["method", "settings", "auto_off", "times_plain", "times_constant_d", "pairs", "equal",
                "draft_share", "optimise_share"]


def count(options, folder, plain, row):
    section, varied, method, settings = row
    optimises = method in ("swift", "clasp") and settings.get("choose") != "fixed"
    unlimited = ["auto_off=false", *(["optimise_share=1"] if optimises else [])]
    report, jobs = simulate(options, words_of(options, method, settings, unlimited), folder)
    figures = report["figures"]
    rows, optimised = layer_rows(figures, jobs, settings)
    equal = [answer["ids"] for answer in report["prompts"]] == plain
    print(f"{section}: {method} {settings_text(settings)}", file=sys.stderr, flush=True)
    return [section, varied, method, settings_text(settings),
            f"{figures['emitted_tokens'] / figures['batches']:.3f}",
            f"{figures['accepted_tokens'] / max(1, figures['draft_rows']):.3f}",
            f"{figures['draft_rows'] / figures['batches']:.2f}",
            f"{(rows + optimised) / figures['emitted_tokens']:.1f}",
            f"{optimised / (rows + optimised):.3f}", "yes" if equal else "NO"]


def counts(options):
    sets, prompts = prompt_sets.chosen(options)
    with prompts:
        everything = pathlib.Path(prompts.name) / "all.jsonl"
        everything.write_text("".join(file.read_text() for file in sets.values()))
        plain, _ = simulate(options, words_of(options, "plain", {}), prompts.name)
        ids = [answer["ids"] for answer in plain["prompts"]]
        if options.quick:
            chosen = cases.quick()
        elif options.lora:
            chosen = cases.lens_exits((8,) if options.temp else (8, 10, 12))
        elif options.temp:
            chosen = cases.sampled()
        else:
            chosen = [*cases.exits(), *cases.swift(options.ratio), *cases.clasp(options.skipped)]
        chosen = [row for row in chosen if not options.sections or row[0] in options.sections.split(",")]
        rows = []
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for row in pool.map(lambda each: count(options, prompts.name, ids, each), chosen):
                rows.append(row)
                write_table(options, COUNT_COLUMNS, rows)


def auto_off_row(options, folder, files, row):
    _, _, method, settings = row
    words = [*words_of(options, method, settings, ["auto_off=true"]), "--baseline", "--check"]
    reports = [simulate(options, words, folder, file)[0] for file in files]
    tokens = [report["figures"]["emitted_tokens"] for report in reports]
    over_plain = [report["times_plain"] for report in reports]
    print(f"{method} {settings_text(settings)}", file=sys.stderr, flush=True)
    return [row[0], settings_text(settings), " ".join(map(str, tokens)),
            " ".join(str(report["figures"]["draft_rows"]) for report in reports),
            " ".join(f"{count / ratio - count:.1f}" for count, ratio in zip(tokens, over_plain)),
            " ".join(f"{ratio:.3f}" for ratio in over_plain)]


def auto_off(options):
    sets, prompts = prompt_sets.chosen(options)
    with prompts:
        rows, chosen = [], wanted(options, cases.timed((options.exit, options.depth), options.ratio, options.skipped))
        files = one_prompt_files(sets, prompts.name)
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for row in pool.map(lambda each: auto_off_row(options, prompts.name, files, each),
                                chosen[:2] if options.quick else chosen):
                rows.append(row)
                write_table(options, AUTO_OFF_COLUMNS, rows)


def wanted(options, rows):
    return [row for row in rows if not options.rows or row[0] in options.rows.split(";")]


def one_prompt_files(sets, folder):
    """A file for each prompt of the sets."""
    files = []
    for name, path in sets.items():
        for number, line in enumerate(prompt_sets.lines_of(path)):
            file = pathlib.Path(folder) / f"{name}-{number}.jsonl"
            file.write_text(line.rstrip("\n") + "\n", encoding="utf-8")
            files.append(file)
    return files


def check(options, words, file):
    """(tokens/s, plain decoding's, whether they say the same) of one answer."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [options.paceline, "check", "-t", str(options.threads), "--prompts", file, "--json",
                   out.name, *words]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode not in (0, 1):
            sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
        report = json.loads(pathlib.Path(out.name).read_text())
        return report["tokens_per_second"], report["plain_tokens_per_second"], report["equal"]


def with_settings(method, settings):
    """The text of the method's configuration with [self_draft] changed; `paceline run` has no --set."""
    lines = [f'extends = "{method}"', "[self_draft]"]
    for key, value in settings.items():
        lines.append(f"{key} = " + (f'"{value}"' if isinstance(value, str) else str(value).lower()))
    if settings.get("tree") == "none":
        lines += ["[schedule]", 'shape = "chain"']
    return "\n".join(lines) + "\n"


def shares(options, row, auto_off, file):
    """The parts of the time in which a run's jobs drafted and optimised."""
    _, _, method, settings = row
    with tempfile.TemporaryDirectory() as folder:
        trace, config = pathlib.Path(folder) / "trace.json", pathlib.Path(folder) / "method.toml"
        config.write_text(with_settings(method, {**settings, "auto_off": auto_off}), encoding="utf-8")
        prompt = prompt_sets.text_of(file.read_text(encoding="utf-8").splitlines()[0])
        command = [options.paceline, "run", "-t", options.threads, "--trace", trace, "-p", prompt,
                   "-m", options.model, "--config", config, "-n", options.n, *options.words]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
        durations = {}
        for job in jobs_of(trace):
            name = job["name"].split()[0]
            durations[name] = durations.get(name, 0) + job["dur"]
    durations.pop("prefill", None)
    whole = max(1, sum(durations.values()))
    return (durations.get("draft", 0) / whole,
            (durations.get("optimise", 0) + durations.get("job", 0)) / whole)


def time_rows(options, chosen, files):
    found = {}  # (number of the row, auto_off): [(tokens/s over plain, equal), one per prompt and round]
    parts = {}  # of the same: shares()
    for turn in range(options.rounds):
        for file in files:
            for number, (_, _, method, settings) in enumerate(chosen):
                for auto_off in (False, True):
                    words = words_of(options, method, settings, [f"auto_off={str(auto_off).lower()}"])
                    rate, plain, equal = check(options, words, file)
                    found.setdefault((number, auto_off), []).append((rate / plain, equal))
                    if (number, auto_off) not in parts:
                        parts[number, auto_off] = shares(options, chosen[number], auto_off, file)
                    write_times(options, chosen, found, parts)
            print(f"round {turn + 1}, {file.stem}", file=sys.stderr, flush=True)


def write_times(options, chosen, found, parts):
    """The table so far; a ratio to constant D is of the same prompt in the same round."""
    rows = []
    for (number, auto_off), pairs in sorted(found.items()):
        over_plain = [ratio for ratio, _ in pairs]
        constant = [ratio for ratio, _ in found[0, False]]
        over_constant = [ratio / other for ratio, other in zip(over_plain, constant)]
        name, _, _, settings = chosen[number]
        rows.append([name, settings_text(settings), "yes" if auto_off else "no", spread(over_plain),
                     spread(over_constant), str(len(pairs)),
                     "yes" if all(equal for _, equal in pairs) else "NO",
                     *(f"{share:.3f}" for share in parts[number, auto_off])])
    write_table(options, TIME_COLUMNS, rows)


def times(options):
    sets, prompts = prompt_sets.chosen(options)
    with prompts:
        files = one_prompt_files(sets, prompts.name)
        constant = (options.exit, options.depth)
        chosen = (cases.timed_lens(constant) if options.lora
                  else cases.timed(constant, options.ratio, options.skipped))
        chosen = wanted(options, chosen)
        if options.quick:
            chosen, files = chosen[:2], files[:1]
        time_rows(options, chosen, files)


def tool(options, file, study, *words):
    """The lines that paceline_skip_sets prints."""
    command = [options.skip_sets, study, "-m", options.model, "--prompts", file, *map(str, words)]
    print(" ".join(map(str, [study, *words])), file=sys.stderr, flush=True)
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout.splitlines()


def sets(options):
    chosen, prompts = prompt_sets.chosen(options)
    with prompts:
        file = pathlib.Path(prompts.name) / "all.jsonl"
        file.write_text("".join(path.read_text() for path in chosen.values()))
        for study, runs in (cases.QUICK_STUDIES if options.quick else cases.STUDIES).items():
            lines = []
            for words in runs:
                found = tool(options, file, study, *words)
                lines += found if not lines else found[1:]
                (options.folder / f"skip-sets-{study}.tsv").write_text("\n".join(lines) + "\n")


def options_of():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("counts", "times", "auto-off", "sets", *studies.STUDIES))
    prompt_sets.add_options(parser)
    parser.add_argument("--paceline", default=ROOT / "build/release/paceline", type=pathlib.Path)
    parser.add_argument("--model", default=str(DEMO_MODEL))
    parser.add_argument("--lora", help="low-rank updates of the target (safetensors)")
    parser.add_argument("--costs", help="all but times and sets: a cost table of the model (paceline simulate --measure-costs)")
    parser.add_argument("--out", type=pathlib.Path, help="the table (TSV)")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "bench/results",
                        help="sets: where the tables are written")
    parser.add_argument("--skip-sets", type=pathlib.Path, help="sets: the program",
                        default=ROOT / "build/release/bench/skip_sets/paceline_skip_sets")
    parser.add_argument("--sections", default="", help="counts: only these, comma-separated")
    parser.add_argument("--rows", default="", help="times, auto-off: only the rows of these names, separated by ';'")
    parser.add_argument("-n", type=int, default=96, help="most tokens of an answer")
    parser.add_argument("--temp", type=float, default=0.0)
    parser.add_argument("--top-p", type=float, default=0.9, help="with --temp")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="counts: cases that run at the same time")
    parser.add_argument("--threads", type=int, default=1, help="times: of each run")
    parser.add_argument("--exit", type=int, default=10, help="times: of constant D at its best")
    parser.add_argument("--depth", type=int, default=1, help="times: that D")
    parser.add_argument("--ratio", type=float, default=0.1, help="skip ratio of SWIFT's rows and ablations")
    parser.add_argument("--skipped", type=int, default=3, help="layers that CLaSp's rows skip")
    parser.add_argument("--trials", type=int, default=100, help="crossed, stream: sets that each search tries")
    parser.add_argument("--heads", action="append", default=[], metavar="NAME=FILE",
                        help="adadecode: trained heads to measure beside the model's own; may be repeated")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    for name, needs in (("out", ("counts", "times", "auto-off", *studies.STUDIES)),
                        ("costs", ("counts", "auto-off", *studies.STUDIES))):
        if options.what in needs and getattr(options, name) is None:
            parser.error(f"{options.what} needs --{name}")
    options.words = [] if options.temp == 0 else ["--temp", options.temp, "--top-p", options.top_p,
                                                  "--seed", options.seed]
    options.words += ["--lora", options.lora] if options.lora else []
    if options.quick:
        options.first, options.n = 2 if options.what in studies.STUDIES else 1, min(options.n, 24)
        options.trials = min(options.trials, 3)
    return options


def main():
    options = options_of()
    {"counts": counts, "times": times, "auto-off": auto_off, "sets": sets, **studies.STUDIES}[options.what](options)


if __name__ == "__main__":
    main()
