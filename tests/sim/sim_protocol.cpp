// sim_protocol: the protocol under faults, one seed after the other.
//
//     sim_protocol                        2,000 seeds from 1
//     sim_protocol --seeds N --first F    N seeds from F
//     sim_protocol --seed S --verbose     one seed, every event in words
//     sim_protocol --machines ...         seeds of pipelines on two and three machines
// A seed that breaks an oracle, or ends the process, is printed with the line that replays it.
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <unistd.h>

#include "tests/sim/sim_run.hpp"

namespace {

volatile std::uint64_t seed_at_work = 0;
const char* machines_flag = "";  // of the line that replays it

/// A PACE_CHECK has failed: its own line is out already, the seed is what is missing.
void on_abort(int /*signal*/) {
    char line[128];
    const int length =
        std::snprintf(line, sizeof line, "\nreplay: sim_protocol %s--seed %llu --verbose\n",
                      machines_flag, static_cast<unsigned long long>(seed_at_work));
    if (length > 0) (void)!::write(STDERR_FILENO, line, static_cast<std::size_t>(length));
}

struct Arguments {
    std::uint64_t first = 1;
    std::uint64_t seeds = 2'000;
    bool verbose = false;
    bool machines = false;
};

bool parse(int argc, char** argv, Arguments& arguments) {
    for (int i = 1; i < argc; ++i) {
        const std::string_view name = argv[i];
        if (name == "--verbose") {
            arguments.verbose = true;
            continue;
        }
        if (name == "--machines") {
            arguments.machines = true;
            continue;
        }
        if (i + 1 >= argc) return false;
        const std::uint64_t value = std::strtoull(argv[++i], nullptr, 10);
        if (name == "--seeds") {
            arguments.seeds = value;
        } else if (name == "--first") {
            arguments.first = value;
        } else if (name == "--seed") {
            arguments.first = value;
            arguments.seeds = 1;
        } else {
            return false;
        }
    }
    return true;
}

}  // namespace

int main(int argc, char** argv) {
    std::setvbuf(stdout, nullptr, _IOLBF, 1 << 16);
    using namespace paceline::testing;
    Arguments arguments;
    if (!parse(argc, argv, arguments)) {
        std::fprintf(stderr,
                     "usage: sim_protocol [--machines] [--seeds N] [--first N] [--seed N] "
                     "[--verbose]\n");
        return 2;
    }
    std::signal(SIGABRT, on_abort);
    // Incidents of one machine are left to the seeds of one machine.
    const SimKinds kinds = arguments.machines ? SimKinds{.poison = false,
                                                         .crash_loop = false,
                                                         .suspension = false,
                                                         .slow_jobs = false,
                                                         .machines = true}
                                              : SimKinds{};
    if (arguments.machines) machines_flag = "--machines ";
    const auto print = [](const std::string& line) { std::printf("%s\n", line.c_str()); };
    const auto began = std::chrono::steady_clock::now();
    SimOutcome sum;
    std::uint64_t gave_up = 0;
    std::uint64_t broken = 0;
    for (std::uint64_t i = 0; i < arguments.seeds && broken < 10; ++i) {
        seed_at_work = arguments.first + i;
        const SimOutcome outcome = arguments.verbose ? run_seed(seed_at_work, print, kinds)
                                                     : run_seed(seed_at_work, {}, kinds);
        if (outcome.violation) {
            ++broken;
            std::printf("seed %llu: %s\n  replay: sim_protocol %s--seed %llu --verbose\n",
                        static_cast<unsigned long long>(seed_at_work), outcome.violation->c_str(),
                        machines_flag, static_cast<unsigned long long>(seed_at_work));
        }
        sum.events += outcome.events;
        sum.tokens += outcome.tokens;
        sum.answers += outcome.answers;
        sum.stopped += outcome.stopped;
        sum.failed += outcome.failed;
        sum.replays += outcome.replays;
        sum.preemptions += outcome.preemptions;
        sum.cached_tokens += outcome.cached_tokens;
        sum.restarts += outcome.restarts;
        sum.fenced += outcome.fenced;
        sum.faults += outcome.faults;
        gave_up += outcome.gave_up ? 1 : 0;
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
    std::printf(
        "%llu seeds in %.2f s (%.0f per s), %llu events, %llu tokens; answers: %llu whole, "
        "%llu stopped, %llu failed; %llu faults, %llu restarts, %llu replays, %llu preemptions, "
        "%llu cached tokens, %llu fenced "
        "verdicts, %llu runs given up; %llu seeds broken\n",
        number(arguments.seeds), took.count(), static_cast<double>(arguments.seeds) / took.count(),
        number(sum.events), number(sum.tokens), number(sum.answers), number(sum.stopped),
        number(sum.failed), number(sum.faults), number(sum.restarts), number(sum.replays),
        number(sum.preemptions), number(sum.cached_tokens), number(sum.fenced), number(gave_up),
        number(broken));
    return broken == 0 ? 0 : 1;
}
