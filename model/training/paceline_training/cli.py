"""The command line of paceline-train: picks the step's module and lets it read its own options.

Only the chosen module is imported, so that `--help` does not wait for PyTorch. A ValueError or an
OSError is the user's to solve: it is printed as one line and the exit code is 1.
"""

import argparse
import importlib
import sys

STEPS = {
    "data": "makes prompts, lets the target answer them, counts tokens",
    "draft": "trains a draft model on the answers",
    "eagle": "trains an EAGLE draft on the answers and the target's states",
    "heads": "trains exit heads and look-ahead heads on the answers",
    "adapter": "trains an exit adapter on the answers",
    "early-exit": "trains low-rank updates that make the target's own head right early",
    "probe": "fits probes that say whether an early token is right",
    "export": "writes part files that paceline loads",
    "card": "writes the model card of part files",
    "plot": "draws the curves of runs",
}


def usage() -> str:
    lines = ["usage: paceline-train STEP [options]", "", "steps, each with --help of its own:"]
    return "\n".join(lines + [f"  {name:<11}{what}" for name, what in STEPS.items()]) + "\n"


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage(), end="")
        return 0 if arguments else 2
    step = arguments[0]
    if step not in STEPS:
        print(f"paceline-train: no step '{step}'\n\n{usage()}", end="", file=sys.stderr)
        return 2
    module = importlib.import_module("." + step.replace("-", "_"), __package__)
    parser = argparse.ArgumentParser(prog=f"paceline-train {step}", description=module.__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    module.add_arguments(parser)
    options = parser.parse_args(arguments[1:])
    try:
        return module.run(options) or 0
    except (ValueError, OSError) as error:
        print(f"paceline-train {step}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
