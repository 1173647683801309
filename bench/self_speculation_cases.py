"""What bench/self_speculation.py runs: each case a method and what is changed of its configuration.

A case is (section, varied, method, settings). `varied` names the setting that a sweep is over, as its
plot has it on the x axis; a table has several or none.
"""

LAYERS = 30  # of the demo model, whose trained heads the exits below have
EXITS = (10, 15, 20)
PROBE_EXITS = (10, 15)  # with a probe for the trained head
LENS_PROBE_EXIT = 8     # with a probe for the target's own head, with --lora
FREE = LAYERS - 2  # layers that may be skipped: the first and the last are kept


def case(section, varied, method, **settings):
    return section, varied, method, settings


def probes(exits, thresholds, **more):
    """AdaSPEED whose stop rule reads the probe's score: `probe` is the product of a path's scores, `probe-marginal`
    the score of the last token."""
    rows = [case("probe", "reach_min", "adaspeed", exit=exit, threshold_adapts=False, probe=True, reach_min=least,
                 **more) for exit in exits for least in thresholds]
    rows += [case("probe-marginal", "confidence_min", "adaspeed", exit=exit, threshold_adapts=False, probe=True,
                  reach_min=0.0, confidence_min=least, **more) for exit in exits for least in thresholds]
    return rows


def exits():
    """LayerSkip over D, AdaSPEED over thresholds and depth."""
    rows = [case("constant-d", "gamma", "layerskip", exit=exit, gamma=gamma)
            for exit in EXITS for gamma in (1, 2, 3, 4, 6)]
    rows += [case("product", "reach_min", "adaspeed", exit=exit, threshold_adapts=False, reach_min=least)
             for exit in EXITS for least in (0.2, 0.4, 0.6, 0.8)]
    rows += [case("product-adapted", "exit", "adaspeed", exit=exit) for exit in EXITS]
    rows += [case("marginal", "confidence_min", "adaspeed", exit=exit, threshold_adapts=False, reach_min=0.0,
                  confidence_min=least)
             for exit in EXITS for least in (0.2, 0.4, 0.6, 0.8)]
    rows += [case("depth", "gamma", "adaspeed", exit=20, threshold_adapts=False, reach_min=least,
                  gamma=gamma)
             for least in (0.2, 0.6) for gamma in (2, 4, 8, 16)]
    rows += probes(PROBE_EXITS, (0.2, 0.4, 0.6, 0.8))
    rows += [case("probe-depth", "gamma", "adaspeed", exit=15, threshold_adapts=False, probe=True, reach_min=0.2,
                  gamma=gamma) for gamma in (2, 4, 8, 16)]
    return rows


def lens_exits(exits):
    """With --lora: a target that was trained to exit early, read by its own head."""
    lens, thresholds = {"head": "logit-lens"}, (0.2, 0.4, 0.6, 0.8, 0.95)
    rows = [case("constant-d", "gamma", "layerskip", exit=exit, gamma=gamma, **lens)
            for exit in exits for gamma in (1, 2, 3, 4)]
    rows += [case("product", "reach_min", "adaspeed", exit=exit, threshold_adapts=False, reach_min=least, **lens)
             for exit in exits for least in thresholds]
    rows += [case("product-adapted", "exit", "adaspeed", exit=8, **lens)]
    rows += [case("marginal", "confidence_min", "adaspeed", exit=8, threshold_adapts=False, reach_min=0.0,
                  confidence_min=least, **lens) for least in thresholds]
    rows += probes((LENS_PROBE_EXIT,), thresholds[:4], **lens)
    return rows


def swift(ratio):
    """SWIFT and Draft & Verify; `ratio`: what the ablations and the thresholds are measured with."""
    rows = [case("swift-ratio", "skip_ratio", "swift", skip_ratio=share) for share in (0.1, 0.2, 0.3, 0.45)]
    rows += [case("uniform-tree", "skip_ratio", "swift", skip_ratio=share, choose="fixed")
             for share in (0.1, 0.2, 0.3, 0.45)]
    rows += [case("uniform-chain", "skip_ratio", "draft-verify", skip_ratio=share, threshold_adapts=False,
                  confidence_min=0.8) for share in (0.05, 0.1, 0.2, 0.3, 0.45)]
    rows += [case("swift-stop", "confidence_min", "swift", skip_ratio=ratio, confidence_min=least)
             for least in (0.4, 0.6, 0.9)]
    rows += [case("swift-ablation", "no early stop", "swift", skip_ratio=ratio, confidence_min=0.0, gamma=25),
             case("swift-ablation", "no tree", "swift", skip_ratio=ratio, tree="none"),
             case("swift-ablation", "no optimisation", "swift", skip_ratio=ratio, choose="fixed"),
             case("swift-ablation", "wider trees", "swift", skip_ratio=ratio, tree="code")]
    rows += [case("draft-verify", "adapted", "draft-verify", skip_ratio=share) for share in (0.1, 0.2)]
    return rows


def clasp(skipped):
    """CLaSp over the number of skipped layers, the interval and the threshold at which a draft ends."""
    rows = [case("clasp-skipped", "skipped layers", "clasp", skip_ratio=count / FREE, interval=8)
            for count in (2, 3, 5, 7, 10, 14)]
    rows += [case("clasp-interval", "interval", "clasp", skip_ratio=skipped / FREE, interval=verdicts)
             for verdicts in (1, 2, 4, 16, 32, 64)]
    rows += [case("clasp-stop", "confidence_min", "clasp", skip_ratio=skipped / FREE, interval=8,
                  confidence_min=least) for least in (0.3, 0.5, 0.9)]
    return rows


def sampled():
    """Those that the drawn text is measured with."""
    rows = [case("constant-d", "gamma", "layerskip", exit=exit, gamma=gamma)
            for exit in EXITS for gamma in (1, 2, 4)]
    rows += [case("product", "reach_min", "adaspeed", exit=exit, threshold_adapts=False, reach_min=least)
             for exit in EXITS for least in (0.2, 0.6, 0.8, 0.95)]
    rows += [case("marginal", "confidence_min", "adaspeed", exit=exit, threshold_adapts=False, reach_min=0.0,
                  confidence_min=least)
             for exit in PROBE_EXITS for least in (0.2, 0.6, 0.8, 0.95)]
    rows += probes(PROBE_EXITS, (0.2, 0.4, 0.6, 0.8))
    return rows


def quick():
    return [case("constant-d", "gamma", "layerskip", exit=20, gamma=2),
            case("product", "reach_min", "adaspeed", exit=20, threshold_adapts=False, reach_min=0.6),
            case("swift-ratio", "skip_ratio", "swift", skip_ratio=0.1),
            case("clasp-skipped", "skipped layers", "clasp", skip_ratio=3 / FREE, interval=8)]


def timed(constant, ratio, skipped):
    """The rows of the table: tokens/s against plain decoding and against the first of them, constant D at
    its best."""
    exit, depth = constant
    return [
        case("LayerSkip, best constant D", "", "layerskip", exit=exit, gamma=depth),
        case("LayerSkip as configured", "", "layerskip"),
        case("AdaSPEED, product", "", "adaspeed", exit=exit, threshold_adapts=False, reach_min=0.8),
        case("AdaSPEED, marginal", "", "adaspeed", exit=exit, threshold_adapts=False, reach_min=0.0,
             confidence_min=0.8),
        *([case("AdaSPEED, probe", "", "adaspeed", exit=exit, threshold_adapts=False, probe=True, reach_min=0.8)]
          if exit in PROBE_EXITS else []),
        case("AdaSPEED as configured", "", "adaspeed"),
        case("Draft & Verify as configured", "", "draft-verify"),
        case("SWIFT", "", "swift", skip_ratio=ratio),
        case("SWIFT, no early stop", "", "swift", skip_ratio=ratio, confidence_min=0.0),
        case("SWIFT, no tree", "", "swift", skip_ratio=ratio, tree="none"),
        case("SWIFT, no optimisation", "", "swift", skip_ratio=ratio, choose="fixed"),
        case("SWIFT as configured", "", "swift"),
        case("CLaSp", "", "clasp", skip_ratio=skipped / FREE),
        case("CLaSp as configured", "", "clasp"),
    ]


def timed_lens(constant):
    """The same with --lora."""
    exit, depth = constant
    lens = {"head": "logit-lens"}
    rows = [case("LayerSkip, best constant D", "", "layerskip", exit=exit, gamma=depth, **lens)]
    rows += [case(f"LayerSkip, D = {gamma}", "", "layerskip", exit=exit, gamma=gamma, **lens)
             for gamma in (1, 2, 3) if gamma != depth]
    rows += [case("AdaSPEED, product", "", "adaspeed", exit=exit, threshold_adapts=False, reach_min=least, **lens)
             for least in (0.4, 0.6, 0.8)]
    rows += [case("AdaSPEED, marginal", "", "adaspeed", exit=exit, threshold_adapts=False, reach_min=0.0,
                  confidence_min=0.6, **lens)]
    rows += [case("AdaSPEED, probe", "", "adaspeed", exit=exit, threshold_adapts=False, probe=True, reach_min=least,
                  **lens)
             for least in (0.6, 0.8) if exit == LENS_PROBE_EXIT]
    return rows


TREE = {"tree": "paper", "schedule.shape": "tree", "schedule.rows_max": 33}  # SWIFT's dynamic verification

# Self-SD's searches before the run: (row, samples, tokens of each, sets that are tried). SWIFT's table 12 has the first two,
# figure 11 the others.
SEARCHES = [("Self-SD", 8, 32, 5), ("Self-SD, one sample", 1, 8, 30),
            *(("Self-SD over search time", 8, 32, trials) for trials in (10, 25, 50, 100, 200))]
QUICK_SEARCHES = [("Self-SD", 1, 16, 2), ("Self-SD, one sample", 1, 8, 3)]

ADADECODE_EXITS = (10, 15, 23)  # of configs/adadecode.toml


def adadecode(heads):
    """(section, row, exits, settings); `heads`: {name: file} of trained heads beside the model's own."""
    rows = [("table-3", "AdaDecode", ADADECODE_EXITS, {}),
            ("table-3", "without verification", ADADECODE_EXITS, {"acceptance.rule": "unverified"}),
            *(("table-3", "one fixed exit", (exit,), {}) for exit in ADADECODE_EXITS),
            ("table-3", "the target's own head", ADADECODE_EXITS, {"exit.head": "logit-lens"}),
            *(("table-3", f"heads {name}", ADADECODE_EXITS, {"exit.part": file}) for name, file in heads.items())]
    rows += [("figure-5", "AdaDecode", ADADECODE_EXITS, {"exit.gate": gate / 10}) for gate in range(11)]
    rows += [("appendix-e", "multi-hop heads after the last layer", (), {}),
             ("appendix-e", "AdaDecode", ADADECODE_EXITS, {}),
             ("appendix-e", "AdaDecode and multi-hop heads after the last layer", ADADECODE_EXITS, {"exit.ahead": 2})]
    return rows


# Words for paceline_skip_sets: each study's runs, which make one table.
STUDIES = {
    "uniform": [("-n", 96, "--ratios", "0.02,0.05,0.1,0.15,0.2,0.3,0.45")],
    "programme": [("-n", 96, "--skipped", "2,3,5,8,14", "--every", 8)],
    "search": [("-n", 160, "--ratio", ratio) for ratio in (0.1, 0.2, 0.45)]
              + [("-n", 160, "--ratio", 0.45, "--first", 3, *words) for words in (
                  ("--window", 16), ("--window", 64), ("--window", 128), ("--bayes-every", 0),
                  ("--bayes-every", 5), ("--trials", 10), ("--trials", 160))],
}
QUICK_STUDIES = {
    "uniform": [("-n", 24, "--first", 1, "--ratios", 0.1)],
    "programme": [("-n", 24, "--first", 1, "--skipped", 3, "--random", 4, "--small-skip", 0)],
    "search": [("-n", 40, "--first", 1, "--trials", 2, "--window", 16)],
}
