#!/usr/bin/env python3
"""What a 70B target would do on 8 GPUs of one, two and four machines joined by 100 Gbit/s Ethernet: simulated.

    bench/projections_nodes.py --out bench/results/projections-nodes.tsv [--paceline PROGRAM]

Nothing here is measured. Passes, acceptance and plain decoding are those of projections.py, and so are hops inside of
a machine (NVLink). The first GPU has the draft, the other seven a segment each, in order, with as many batches in
flight; the conductor is on the first machine, and plain decoding has a segment on each of the same seven. An edge
between machines passes the hosts at both ends and, between two agents, the conductor's machine (docs/clusters.md):

    message  2 us at each relay, and --net-us for each machine's link that it crosses
    states   float32: out of one GPU's memory and into the other's by PCIe (8 us, 25 GB/s), and once over each link
             at --net-gb-s. A connection is encrypted; one thread's TLS moves 1.2 GB/s where the network could more
"""

import argparse
import pathlib
import sys
import tempfile

import projections
from projections import CARDS, LINKS, MESSAGE_SECONDS, PAIRS, ROWS, shape_of

SEGMENTS = 7
MACHINES = [1, 2, 4]
METHODS = [("plain", "autoregressive-segments"), ("PEARL", "pearl"), ("FOLD", "fold"), ("hybrid", "hybrid")]


def homes_of(machines):
    """The machine of each process, by name."""
    share = (SEGMENTS + 1) // machines
    homes = {"conductor": 0, "draft": 0}
    homes.update({f"part-{i}": i // share for i in range(1, SEGMENTS + 1)})
    return homes


def links_between(one, other):
    """How many machines' links a frame crosses: all connections end at the conductor's machine."""
    return 0 if one == other else (one != 0) + (other != 0)


def edge_seconds(links, size, net_seconds, net_bandwidth):
    latency, bandwidth = LINKS["pcie"]
    hosts = 2 * (latency + size / bandwidth)
    return MESSAGE_SECONDS * (1 + 2 * links) + hosts + links * (net_seconds + size / net_bandwidth)


def edges_table(target, machines, net_seconds, net_bandwidth):
    """Records of the edges between machines."""
    homes = homes_of(machines)
    lines = []
    for one, its in homes.items():
        for other, there in homes.items():
            links = links_between(its, there)
            for rows in ROWS if links else []:
                size = 4 * int(shape_of(target)["dim"]) * rows
                seconds = edge_seconds(links, size, net_seconds, net_bandwidth)
                lines.append(f"{one}>{other}\t-\t0\t{rows}\t0\t0\t0\t{seconds:.9f}")
    return "".join(line + "\n" for line in lines)


def project(options, folder):
    projector = projections.Projector(options, folder)
    costs = pathlib.Path(folder) / "costs.tsv"
    records, one_machine = [], {}
    for card in options.cards:
        for pair in options.pairs:
            target, draft, _ = PAIRS[pair]
            for machines in MACHINES:
                for gbps in options.net_gb_s if machines > 1 else [0.0]:
                    costs.write_text(projections.cost_table(target, (target, draft), card, "nvlink") +
                                     (edges_table(target, machines, options.net_us * 1e-6, gbps * 1e9) if gbps else ""))
                    for method, configuration in METHODS:
                        plain = method == "plain"
                        for acceptance in options.acceptance[:1] if plain else options.acceptance:
                            rate = projector.rate(pair, method, configuration, SEGMENTS, 1 if plain else SEGMENTS,
                                                  0 if plain else 1, (acceptance, options.exit_accuracy), costs)
                            key = (card, pair, method, acceptance)
                            one_machine.setdefault(key, rate)
                            base = one_machine[card, pair, "plain", options.acceptance[0]]
                            records.append([card, pair, f"{machines}x{(SEGMENTS + 1) // machines}",
                                            f"{gbps:g}" if gbps else "-", method, "-" if plain else f"{acceptance:g}",
                                            f"{rate:.1f}", f"{rate / base:.2f}", f"{rate / one_machine[key]:.2f}"])
                            print("\t".join(records[-1]), file=sys.stderr, flush=True)
    return records


def write(options, records):
    head = ["# what: simulated tokens/s of one request of a 70B target on 8 GPUs of one, two and four machines, from "
            "data sheets; nothing here was measured",
            f"# command: bench/projections_nodes.py --out FILE --first {options.first} -n {options.n}",
            f"# commit: {projections.commit()}", f"# date: {projections.today()}",
            f"# machine: simulated GPUs at 0.75 of their bandwidth, 1.3 us a kernel; NVLink inside of a machine, "
            f"{options.net_us:g} us a link of Ethernet; an exit is right in {options.exit_accuracy:g} of the cases",
            "# columns: shape is machines x GPUs of each; net_gb_s of a link: 11.2 is 100 Gbit/s less a tenth, 1.2 what "
            "one thread encrypts; gain is over plain decoding on one machine; of_one_machine: over the same method there",
            "\t".join(["card", "pair", "shape", "net_gb_s", "method", "acceptance", "tokens_per_s", "gain",
                       "of_one_machine"])]
    projections.write_table(options.out, head, records)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--paceline", default=projections.ROOT / "build/release/paceline")
    parser.add_argument("--cards", type=lambda text: text.split(","), default=["H100-SXM", "A100-SXM"],
                        help=", ".join(CARDS))
    parser.add_argument("--pairs", type=lambda text: text.split(","), default=["70b+1b", "70b+8b"])
    parser.add_argument("--net-us", type=float, default=15.0, help="one way, with TCP")
    parser.add_argument("--net-gb-s", type=lambda text: [float(word) for word in text.split(",")], default=[11.2, 1.2],
                        help="GB/s of a link")
    parser.add_argument("--acceptance", type=lambda text: [float(word) for word in text.split(",")], default=[0.6, 0.8])
    parser.add_argument("--exit-accuracy", type=float, default=0.6)
    parser.add_argument("--first", type=int, default=4)
    parser.add_argument("-n", type=int, default=256)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write(options, project(options, folder))


if __name__ == "__main__":
    main()
