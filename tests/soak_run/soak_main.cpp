// soak_pipeline: a pipeline of processes under random requests and faults for as long as is asked.
//
//     soak_pipeline --minutes N [--seed N] [--streams N] [--method NAME] [--model FILE.gguf]
//                   [--fault-every SECONDS] [--hang-limit SECONDS] [--verbose]
//                   [--without long-rest|leftovers] [--plant
//                   wrong-token|memory-leak|descriptor-leak|hang]
//
// The stages are this program again, as `paceline` starts itself. In bursts of 5 to 20 s the
// clients (soak_clients.hpp) ask; then all answers end and the pipeline rests for up to 2 s, with
// faults (soak_faults.hpp) in both. Last come some seconds without faults, after which the stages
// may hold nothing of a request. Ends with a table, and with exit code 1 after a wrong token, a
// failed answer, a hang (soak_watchdog.hpp) or a figure that grows (soak_samples.hpp).
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/core.h>
#include <memory>
#include <random>
#include <string_view>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "launch/base/run_log.hpp"
#include "launch/config/methods.hpp"
#include "launch/load/load_model.hpp"
#include "launch/placement/pretrained.hpp"
#include "launch/session/generator.hpp"
#include "launch/session/pipeline_session.hpp"
#include "launch/session/stage_main.hpp"
#include "runtime/loop/stage_process.hpp"
#include "tests/soak_run/soak_clients.hpp"
#include "tests/soak_run/soak_faults.hpp"
#include "tests/soak_run/soak_samples.hpp"
#include "tests/soak_run/soak_watchdog.hpp"
#include "tests/support/source_tree.hpp"

namespace paceline::testing {
namespace {

constexpr int kContext = 256;
// Positions that the target's KV caches have room for: requests wait for pages, and are preempted.
constexpr std::uint64_t kCachePositions = kContext * 5 / 4;

/// What a run came to.
struct Verdict {
    std::vector<std::string> failures;
    void fail(const std::string& sentence) { failures.push_back(sentence); }
};

double seconds(SoakClock::duration time) {
    return std::chrono::duration<double>(time).count();
}

/// A pipeline, its clients, and what is done to it and watched of it.
class Soak {
public:
    Soak(const SoakPlan& plan, int vocab_size, PipelineSession& session, TokenGenerator& oracle)
        : plan_{plan},
          session_{session},
          clients_{plan, vocab_size, session, oracle, [this] { tick(); }},
          faults_{plan, session},
          samples_{plan, session},
          watchdog_{plan},
          random_{plan.seed + 2} {}

    Verdict run() {
        Verdict verdict;
        const auto end = SoakClock::now() + plan_.length;
        while (SoakClock::now() < end && verdict.failures.empty()) {
            const std::chrono::milliseconds burst{5'000 + random_() % 15'000};
            session_.call([&] { clients_.begin(std::min(SoakClock::now() + burst, end)); });
            const Status ended = session_.run();
            watchdog_.rest();
            if (!ended.ok()) verdict.fail("the run ended: " + ended.error().what);
            if (SoakClock::now() < end) rest();
        }
        faults_.end();
        if (verdict.failures.empty() && plan_.parts.leftovers) check_leftovers(verdict);
        judge(verdict);
        return verdict;
    }

    void print() const;

private:
    void tick() {
        const auto now = SoakClock::now();
        watchdog_.tick(now, clients_.last_progress());
        if (now < next_look_) return;
        next_look_ = now + std::chrono::milliseconds{10};
        tell_of_hang(now);
        spoil();
        clients_.cancel_due(now);
        faults_.tick(now);
        samples_.tick(now);
    }

    /// The watchdog cannot look at requests: their thread must tell before it ends the process.
    void tell_of_hang(SoakClock::time_point now) {
        if (told_ || now - clients_.last_progress() < plan_.hang_limit * 9 / 10) return;
        told_ = true;
        std::fprintf(stderr, "nothing has come for %.0f s:\n%s",
                     seconds(now - clients_.last_progress()), clients_.open_text().c_str());
    }

    /// Some requests without faults, so that every stage receives what it may have missed, then
    /// none.
    void check_leftovers(Verdict& verdict) {
        session_.call([&] { clients_.begin(SoakClock::now() + std::chrono::seconds{2}); });
        const Status ended = session_.run();
        watchdog_.rest();
        if (!ended.ok()) return verdict.fail("the run ended: " + ended.error().what);
        std::this_thread::sleep_for(std::chrono::seconds{1});
        const std::string held = samples_.held_at_rest();
        if (!held.empty()) verdict.fail("no request is open, and stages hold: " + held);
    }

    /// No request is open, and stages may die all the same.
    void rest() {
        const auto until = SoakClock::now() + std::chrono::milliseconds{random_() % 2'000};
        while (SoakClock::now() < until) {
            std::this_thread::sleep_for(std::chrono::milliseconds{20});
            faults_.tick(SoakClock::now());
        }
    }

    void spoil() {
        if (plan_.bug == SoakBug::MemoryLeak) {
            spoilt_.emplace_back(64U << 10U, 'x');
        } else if (plan_.bug == SoakBug::DescriptorLeak) {
            spoilt_fds_.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        } else if (plan_.bug == SoakBug::Hang && clients_.tally().tokens > 500) {
            std::this_thread::sleep_for(2 * plan_.hang_limit);
        }
    }

    void judge(Verdict& verdict) const {
        for (const std::string& complaint : clients_.complaints()) verdict.fail(complaint);
        if (clients_.tally().whole == 0) verdict.fail("no answer came to its end");
        for (const SoakFigure& figure : samples_.figures()) {
            if (figure.within()) continue;
            verdict.fail(fmt::format("{} grows by {:.1f} {} per hour, {:.1f} at most", figure.name,
                                     figure.slope.per_hour(), figure.unit,
                                     figure.bound.over(figure.slope.hours())));
        }
    }

    SoakPlan plan_;
    PipelineSession& session_;
    SoakClients clients_;
    SoakFaults faults_;
    SoakSamples samples_;
    SoakWatchdog watchdog_;
    std::mt19937_64 random_;
    SoakClock::time_point next_look_{};
    bool told_ = false;  // of a hang
    std::vector<std::string> spoilt_;
    std::vector<OwnedFd> spoilt_fds_;
};

void Soak::print() const {
    const SoakTally& tally = clients_.tally();
    const auto count = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
    std::printf(
        "requests  %llu: %llu whole, %llu stopped, %llu cancelled, %llu failed; "
        "%llu of them continued a conversation, %llu after a long rest\n",
        count(tally.requests()), count(tally.whole), count(tally.stopped), count(tally.cancelled),
        count(tally.failed), count(tally.continued), count(tally.long_rests));
    std::printf("tokens    %llu compared with plain decoding, %llu wrong\n", count(tally.tokens),
                count(tally.wrong));
    std::printf("faults    %d kills, %d pauses; %llu replays of requests\n", faults_.kills(),
                faults_.pauses(), count(tally.replays));
    std::printf("caches    %llu tokens of prompts found; %llu preemptions\n", count(tally.cached),
                count(tally.preemptions));
    std::printf("longest   %.2f s without progress, %.2f s for one turn of the conductor's loop\n",
                seconds(watchdog_.longest_wait()), seconds(watchdog_.longest_turn()));
    std::printf("\n%-34s %9s %9s %11s %11s\n", "figure", "least", "most", "per hour", "at most");
    for (const SoakFigure& figure : samples_.figures()) {
        const std::string name =
            figure.unit.empty() ? figure.name : fmt::format("{}, {}", figure.name, figure.unit);
        if (figure.slope.hours() <= 0.0) {
            std::printf("%-34s %9s\n", name.c_str(), "-");
            continue;
        }
        std::printf("%-34s %9.2f %9.2f %11.2f %11.2f%s\n", name.c_str(), figure.slope.least(),
                    figure.slope.most(), figure.slope.per_hour(),
                    figure.bound.over(figure.slope.hours()), figure.within() ? "" : "  <--");
    }
}

bool no_child_is_left() {
    return ::waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD;
}

std::uint64_t kv_memory(const ModelConfig& config) {
    const auto token =
        static_cast<std::uint64_t>(2 * config.layers * config.kv_heads * config.head_dim) *
        sizeof(std::uint16_t);  // keys and values in f16
    return kCachePositions * token;
}

Result<Verdict> soak(const SoakPlan& plan) {
    const ModelOptions options{
        .model = plan.model, .threads = 1, .parts = kNoParts, .context = kContext};
    Result<ModelFile> file = open_named_model(options);
    if (!file) return file.error();
    Result<PipelineConfig> config = method_config(plan.method);
    if (!config) return config.error();
    const Result<ResolvedConfig> pipeline =
        use_parts(std::move(config).value(), {.option = kNoParts, .folders = {}}, file.value());
    if (!pipeline) return pipeline.error();
    Result<RunLog> log = RunLog::open({}, plan.verbose);
    if (!log) return log.error();
    const Result<std::unique_ptr<TokenGenerator>> oracle =
        make_plain_generator(file.value(), options, Show::No);
    if (!oracle) return oracle.error();
    Result<std::unique_ptr<PipelineSession>> session =
        PipelineSession::open(file.value(), options, pipeline.value(),
                              {.log = &log.value(),
                               .output = {.table = false, .remarks = false},
                               .requests = plan.streams,
                               .kv_memory = kv_memory(file.value().config())});
    if (!session) return session.error();
    Verdict verdict;
    {
        Soak soak{plan, file.value().config().vocab_size, *session.value(), *oracle.value()};
        verdict = soak.run();
        soak.print();
    }
    session.value().reset();
    if (!no_child_is_left()) verdict.fail("a stage is left when the session has ended");
    return verdict;
}

// ---- The command line

template <class T>
bool parse(std::string_view word, T& value) {
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    return error == std::errc{} && end == word.data() + word.size();
}

bool parse_millis(std::string_view word, double unit_ms, std::chrono::milliseconds& value) {
    double number = 0.0;
    if (!parse(word, number) || number <= 0.0 || number * unit_ms < 1.0) return false;
    value = std::chrono::milliseconds{static_cast<std::int64_t>(number * unit_ms)};
    return true;
}

bool parse_bug(std::string_view word, SoakBug& bug) {
    if (word == "wrong-token") bug = SoakBug::WrongToken;
    if (word == "memory-leak") bug = SoakBug::MemoryLeak;
    if (word == "descriptor-leak") bug = SoakBug::DescriptorLeak;
    if (word == "hang") bug = SoakBug::Hang;
    return bug != SoakBug::None;
}

bool parse_part(std::string_view word, SoakParts& parts) {
    if (word == "long-rest") parts.long_rest = false;
    if (word == "leftovers") parts.leftovers = false;
    return word == "long-rest" || word == "leftovers";
}

bool parse(int argc, char** argv, SoakPlan& plan) {
    for (int i = 1; i < argc; ++i) {
        const std::string_view name = argv[i];
        if (name == "--verbose") {
            plan.verbose = true;
            continue;
        }
        if (i + 1 >= argc) return false;
        const std::string_view word = argv[++i];
        const bool good = name == "--minutes" ? parse_millis(word, 60'000, plan.length)
                          : name == "--seed"  ? parse(word, plan.seed)
                          : name == "--streams"
                              ? parse(word, plan.streams) && plan.streams >= 1 && plan.streams <= 32
                          : name == "--fault-every" ? parse_millis(word, 1'000, plan.fault_every)
                          : name == "--hang-limit"  ? parse_millis(word, 1'000, plan.hang_limit)
                          : name == "--without"     ? parse_part(word, plan.parts)
                          : name == "--plant"       ? parse_bug(word, plan.bug)
                                                    : false;
        if (good) continue;
        if (name == "--method") {
            plan.method = word;
        } else if (name == "--model") {
            plan.model = word;
        } else {
            return false;
        }
    }
    return true;
}

int run_soak(int argc, char** argv) {
    SoakPlan plan;
    plan.seed = std::random_device{}();
    plan.model = fixtures() + "/models/llama-untied-f16.gguf";
    if (!parse(argc, argv, plan)) {
        std::fputs(
            "usage: tests/soak [--minutes N] [--seed N] [--streams 1..32] [--method NAME]\n"
            "                  [--model FILE.gguf] [--fault-every SECONDS]\n"
            "                  [--hang-limit SECONDS] [--verbose] [--without long-rest|leftovers]\n"
            "                  [--plant wrong-token|memory-leak|descriptor-leak|hang]\n",
            stderr);
        return 2;
    }
    std::printf("soak: --seed %llu, %.1f minutes, %s, %d streams, a fault every %.1f s\n",
                static_cast<unsigned long long>(plan.seed), seconds(plan.length) / 60.0,
                plan.method.c_str(), plan.streams, seconds(plan.fault_every));
    std::fflush(stdout);
    const Result<Verdict> verdict = soak(plan);
    if (!verdict) {
        std::fprintf(stderr, "soak FAILED: %s\n", verdict.error().what.c_str());
        return 1;
    }
    std::fflush(stdout);
    for (const std::string& failure : verdict.value().failures)
        std::fprintf(stderr, "soak FAILED: %s\n", failure.c_str());
    if (verdict.value().failures.empty()) std::puts("\nsoak passed");
    return verdict.value().failures.empty() ? 0 : 1;
}

}  // namespace
}  // namespace paceline::testing

int main(int argc, char** argv) {
    if (argc == 4 && std::string_view{argv[1]} == paceline::kStageSubcommand)
        return paceline::stage_main(std::atoi(argv[3]));
    return paceline::testing::run_soak(argc, argv);
}
