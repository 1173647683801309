"""Studies of self_speculation.py that are tables and figures of the papers on other sets, searches and heads.

searched    SWIFT's tables 10 and 12 and figure 11: Self-SD, whose set is found before the run by `paceline search` on few
            samples, beside uniform sets, SWIFT and LayerSkip; each set as a chain and with SWIFT's tree. search_s is the
            time of the search on this machine, with the model's loading. Of each set of prompts every second one is
            searched on, the others are judged
crossed     SWIFT's figure 2b: the set found on one set of prompts drafts for all the others
stream      SWIFT's figure 7: the sets of prompts one after the other in one process. Self-SD keeps the set that was found on
            the first of them; SWIFT searches all the time. M, alpha and the gain of each set of prompts
adadecode   AdaDecode's table 3, figure 5 and appendix E. heads, parameters: of the exits (T heads). consistency: share of
            the answers that equal plain decoding's. early: tokens that an exit predicted, for each token; rejected: of them

All of it is in simulated time: one device that has the costs of --costs. times_plain: tokens/s over plain decoding's there.
alpha: accepted over proposed candidates, with a tree over all of its nodes. Drafts are never switched off.
"""

import json
import pathlib
import subprocess
import sys
import time
import tomllib

import prompt_sets
import self_speculation_cases as cases
from self_speculation_runs import simulate, words_of, write_table

UNLIMITED = ["auto_off=false"]
SEARCH_COLUMNS = ["row", "tree", "samples", "tokens", "trials", "search_s", "skip_ratio", "M", "alpha", "times_plain",
                  "equal"]
CROSS_COLUMNS = ["set_of", "judged_on", "skip_ratio", "M", "alpha", "times_plain", "equal"]
STREAM_COLUMNS = ["row", "place", "judged_on", "M", "alpha", "times_plain", "equal"]
ADADECODE_COLUMNS = ["section", "set", "row", "exits", "gate", "heads", "parameters", "consistency", "early", "rejected",
                     "times_plain"]


class Halves:
    """Of each set of prompts a file to search on and one to judge."""

    def __init__(self, options):
        self.sets, self.folder = prompt_sets.chosen(options)
        self.searched, self.judged = {}, {}
        for name, file in self.sets.items():
            lines = prompt_sets.lines_of(file)
            if len(lines) < 2:
                sys.exit(f"{name}: one prompt is searched on and another is judged; there is only {len(lines)}")
            self.searched[name] = self.written(f"{name}-searched", lines[::2])
            self.judged[name] = self.written(f"{name}-judged", lines[1::2])
        self.all_searched = self.written("searched", self.lines(self.searched))
        self.all_judged = self.written("judged", self.lines(self.judged))

    def written(self, name, lines):
        file = pathlib.Path(self.folder.name) / f"{name}.jsonl"
        file.write_text("".join(line.rstrip("\n") + "\n" for line in lines), encoding="utf-8")
        return file

    def lines(self, files):
        return [line for file in files.values() for line in prompt_sets.lines_of(file)]


def found_set(options, folder, file, samples, tokens, trials):
    """(the set, seconds) of `paceline search`."""
    out = pathlib.Path(folder) / "found.toml"
    command = [options.paceline, "search", "-m", options.model, "--prompts", file, "--first", samples, "-n", tokens,
               "--window", min(8, tokens), "--skip", round(100 * options.ratio), "--trials", trials, "--out", out,
               "-t", options.threads]
    began = time.monotonic()
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return tomllib.loads(out.read_text())["self_draft"]["skip"], time.monotonic() - began


def of_prompts(rows, plain):
    """M, alpha, tokens/s over plain decoding's and whether the tokens are its own, of some answers."""
    batches, proposed = sum(row["batches"] - 1 for row in rows), sum(row["proposed"] for row in rows)

    def seconds(answers):
        return sum((row["tokens"] - 1) / row["tokens_per_second"] for row in answers if row["tokens"] > 1)

    return [f"{sum(row['tokens'] - 1 for row in rows) / batches:.3f}" if batches else "-",
            f"{sum(row['accepted'] for row in rows) / proposed:.3f}" if proposed else "-",
            f"{seconds(plain) / seconds(rows):.3f}" if seconds(rows) else "-",
            "yes" if [row["ids"] for row in rows] == [row["ids"] for row in plain] else "NO"]


class Judge:
    """Runs rows on files, and keeps plain decoding's answers to them."""

    def __init__(self, options, folder):
        self.options, self.folder, self.plain = options, folder, {}

    def answers(self, file, method, settings):
        report, _ = simulate(self.options, words_of(self.options, method, settings, UNLIMITED if method != "plain" else ()),
                             self.folder, file)
        return report["prompts"]

    def figures(self, file, method, settings):
        return of_prompts(self.answers(file, method, settings), self.plain_of(file))

    def plain_of(self, file):
        if file not in self.plain:
            self.plain[file] = self.answers(file, "plain", {})
        return self.plain[file]


def self_sd(skip, tree=False):
    return {"skip": skip, **(cases.TREE if tree else {})}


def searched(options):
    halves = Halves(options)
    with halves.folder:
        judge, rows = Judge(options, halves.folder.name), []
        fixed = [("uniform set", "draft-verify", {"skip_ratio": options.ratio}, tree) for tree in (False, True)]
        fixed += [("SWIFT", "swift", {"skip_ratio": options.ratio}, True), ("LayerSkip", "layerskip", {}, False)]
        for row, method, settings, tree in fixed:
            more = cases.TREE if tree and method != "swift" else {}
            rows.append([row, "yes" if tree else "no", "-", "-", "-", "-",
                         "-" if method == "layerskip" else f"{options.ratio:.2f}",
                         *judge.figures(halves.all_judged, method, {**settings, **more})])
        for row, samples, tokens, trials in cases.QUICK_SEARCHES if options.quick else cases.SEARCHES:
            skip, seconds = found_set(options, judge.folder, halves.all_searched, samples, tokens, trials)
            for tree in (False, True):
                print(f"{row}, {trials} sets, tree: {tree}", file=sys.stderr, flush=True)
                rows.append([row, "yes" if tree else "no", str(samples), str(tokens), str(trials), f"{seconds:.1f}",
                             f"{options.ratio:.2f}",
                             *judge.figures(halves.all_judged, "draft-verify", self_sd(skip, tree))])
            write_table(options, SEARCH_COLUMNS, rows)


def crossed(options):
    halves = Halves(options)
    with halves.folder:
        judge, rows = Judge(options, halves.folder.name), []
        for of, file in halves.searched.items():
            skip, _ = found_set(options, judge.folder, file, 8, 32, options.trials)
            for name, judged in halves.judged.items():
                print(f"set of {of}, {name}", file=sys.stderr, flush=True)
                rows.append([of, name, f"{options.ratio:.2f}", *judge.figures(judged, "draft-verify", self_sd(skip))])
                write_table(options, CROSS_COLUMNS, rows)


def stream(options):
    halves = Halves(options)
    with halves.folder:
        judge, rows = Judge(options, halves.folder.name), []
        first = next(iter(halves.searched.values()))
        skip, _ = found_set(options, judge.folder, first, 8, 32, options.trials)
        search = {"skip_ratio": options.ratio}
        plain = judge.plain_of(halves.all_judged)
        for row, method, settings in (("Self-SD, the first set's", "draft-verify", self_sd(skip)),
                                      ("SWIFT, no tree", "swift", {**search, "tree": "none"}), ("SWIFT", "swift", search)):
            print(row, file=sys.stderr, flush=True)
            answers, begin = judge.answers(halves.all_judged, method, settings), 0
            for place, (name, file) in enumerate(halves.judged.items(), 1):
                end = begin + len(prompt_sets.lines_of(file))
                rows.append([row, str(place), name, *of_prompts(answers[begin:end], plain[begin:end])])
                begin = end
            write_table(options, STREAM_COLUMNS, rows)


def adadecode_config(exits):
    """configs/adadecode.toml with other exits: [[stage]] tables take the place of its own."""
    stages = [f'[[stage]]\nname = "to-{last}"\nrole = "segment"\nlayers = [{first}, {last}]\nprocess = "target"\n'
              + ("exit = true\n" if last < cases.LAYERS else "")
              for first, last in zip((0, *exits), (*exits, cases.LAYERS))]
    return 'extends = "adadecode"\n\n' + "\n".join(stages)


def adadecode_row(options, folder, name, file, plain, row):
    section, label, exits, settings = row
    method = "heads"
    if exits:
        method = pathlib.Path(folder) / f"adadecode-{'-'.join(map(str, exits))}.toml"
        method.write_text(adadecode_config(exits), encoding="utf-8")
    off = [] if "acceptance.rule" in settings else ["schedule.controller=off"]
    report, _ = simulate(options, words_of(options, method, settings, off), folder, file)
    made = report["figures"].get("adadecode", {})
    answers, bare = report["prompts"], plain["prompts"]
    same = sum(answer["ids"] == other["ids"] for answer, other in zip(answers, bare))
    _, _, gain, _ = of_prompts(answers, bare)
    heads = 0 if settings.get("exit.head") == "logit-lens" else len(exits)
    cells = [f"{made[key]:.3f}" if key in made else "-" for key in ("early_prediction_rate", "rejection_rate")]
    print(f"{name}, {section}: {label} {exits} {settings}", file=sys.stderr, flush=True)
    return [section, name, label, ",".join(map(str, exits)) or "-", str(settings.get("exit.gate", "-")), str(heads),
            str(heads * options.dim ** 2), f"{same / len(answers):.3f}", *cells, gain]


def adadecode(options):
    options.dim = json.loads(subprocess.run([options.paceline, "inspect", options.model, "-o", "json"], check=True,
                                            capture_output=True, text=True).stdout)["dim"]
    heads = {}
    for word in options.heads:
        if "=" not in word:
            sys.exit(f"--heads {word}: NAME=FILE is needed")
        heads[word.split("=", 1)[0]] = word.split("=", 1)[1]
    chosen, rows = cases.adadecode(heads), []
    if options.quick:
        chosen = [*chosen[:3], *(row for row in chosen if row[3].get("exit.gate") in (0, 1)), chosen[-1]]
    sets, prompts = prompt_sets.chosen(options)
    with prompts:
        for name, file in sets.items():
            plain, _ = simulate(options, words_of(options, "plain", {}), prompts.name, file)
            for row in chosen:
                rows.append(adadecode_row(options, prompts.name, name, file, plain, row))
                write_table(options, ADADECODE_COLUMNS, rows)


STUDIES = {"searched": searched, "crossed": crossed, "stream": stream, "adadecode": adadecode}
