// The stage of the toy decode: loads a toy backend, joins the pipeline, and does wrong what its
// assignment says (toy_faults.hpp).
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <new>
#include <random>
#include <signal.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "ipc/transport/ring_layout.hpp"
#include "model/warm_up.hpp"
#include "runtime/loop/stage_loop.hpp"
#include "runtime/loop/stage_process.hpp"
#include "tests/support/toy/toy_faults.hpp"
#include "tests/support/toy/toy_frail.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

constexpr std::size_t kHeaderWords = sizeof(RingHeader) / sizeof(std::uint64_t);

[[noreturn]] void hang() {
    for (;;) std::this_thread::sleep_for(std::chrono::hours{1});
}

/// A fault of this incarnation, and how far it is from striking.
struct Pending {
    ToyFault fault;
    std::uint32_t left = 0;  // passings until it strikes; 0: it did
};

/// What the fault hook, a plain function, works on. One thread.
struct Mischief {
    std::vector<Pending> pending;
    bool at_work = false;
    bool scribbles_out = false;
    bool scribbles_in = false;
    std::mt19937_64 random{1};
};
Mischief mischief;
std::vector<StageId> own_actors;

/// Whether a mapping is a ring, "...ring-FROM-TO", that this process is to scribble over.
bool is_target(const std::string& line) {
    static constexpr const char* kPrefix = "paceline-ring-";
    const std::size_t found = line.find(kPrefix);
    if (found == std::string::npos) return false;
    unsigned from = 0;
    unsigned to = 0;
    if (std::sscanf(line.c_str() + found + std::strlen(kPrefix), "%u-%u", &from, &to) != 2) {
        return false;
    }
    for (const StageId id : own_actors) {
        if (mischief.scribbles_out && id.value == from) return true;
        if (mischief.scribbles_in && id.value == to) return true;
    }
    return false;
}

/// Some random words at random places of the rings, found where the kernel lists the mappings.
void scribble() {
    std::ifstream maps{"/proc/self/maps"};
    for (std::string line; std::getline(maps, line);) {
        if (!is_target(line)) continue;
        unsigned long begin = 0;
        unsigned long end = 0;
        if (std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) != 2) continue;
        const std::size_t words = (end - begin) / sizeof(std::uint64_t);
        // NOLINTNEXTLINE(performance-no-int-to-ptr): an address as the kernel prints it
        auto* memory = reinterpret_cast<volatile std::uint64_t*>(begin);
        for (int i = 0; i < 8; ++i) {
            // Half of them where the counts are, the others among the frames.
            const std::size_t range = i % 2 == 0 ? std::min(kHeaderWords, words) : words;
            memory[mischief.random() % range] = mischief.random();
        }
    }
}

void strike(const ToyFault& fault) {
    switch (fault.action) {
        case ToyAction::Die:
            ::kill(::getpid(), SIGKILL);
            hang();
        case ToyAction::Stop:
            ::kill(::getpid(), SIGSTOP);
            break;
        case ToyAction::Hang:
            hang();
        case ToyAction::ScribbleOut:
            mischief.scribbles_out = true;
            break;
        case ToyAction::ScribbleIn:
            mischief.scribbles_in = true;
            break;
        case ToyAction::OutOfMemory:
            throw std::bad_alloc{};
        case ToyAction::SlowRun:
            std::this_thread::sleep_for(std::chrono::seconds{1});
            break;
        case ToyAction::None:
        case ToyAction::ExitOnLoad:
        case ToyAction::HangOnLoad:
        case ToyAction::DieOf:
            break;
    }
}

bool strikes_in_runs(const ToyFault& fault) {
    return fault.action == ToyAction::OutOfMemory || fault.action == ToyAction::SlowRun;
}

void pass(Pending& pending) {
    if (pending.left != 0 && --pending.left == 0) strike(pending.fault);
}

void on_fault_point(FaultPoint point) {
    const bool comes_back = point == FaultPoint::Wired || point == FaultPoint::PeerWired;
    mischief.at_work = mischief.at_work || point == FaultPoint::BeginTaken ||
                       point == FaultPoint::JobStarted || point == FaultPoint::RingMidCopy;
    if (mischief.scribbles_out || mischief.scribbles_in) scribble();
    if (!mischief.at_work && !comes_back) return;
    for (Pending& pending : mischief.pending) {
        if (!strikes_in_runs(pending.fault) && pending.fault.point == point) pass(pending);
    }
}

void on_run() {
    for (Pending& pending : mischief.pending) {
        if (strikes_in_runs(pending.fault)) pass(pending);
    }
}

/// Sets up the faults of this incarnation; those of loading strike at once.
void arrange(const ToyAssignment& assignment, StageId stage, Epoch epoch) {
    mischief.random.seed(stage.value * 1000003ULL + epoch.value);
    for (const ToyFault& fault : assignment.faults) {
        if (fault.action == ToyAction::None || epoch.value < fault.first_epoch ||
            epoch.value > fault.last_epoch) {
            continue;
        }
        if (fault.action == ToyAction::ExitOnLoad) {
            std::fprintf(stderr, "no such tensor: blk.0\n");
            std::exit(3);
        }
        if (fault.action == ToyAction::HangOnLoad) hang();
        const auto extra = static_cast<std::uint32_t>(mischief.random() % fault.spread);
        mischief.pending.push_back({fault, fault.nth + extra});
    }
    fault_hook.store(on_fault_point, std::memory_order_relaxed);
}

control::Hello hello_of(const ToyPlan& plan) {
    control::Hello hello;
    hello.role = "toy";
    hello.equality_class = "fake";
    hello.vocab_size = kFakeVocab;
    hello.dim = kFakeDim;
    hello.kv_bytes = static_cast<std::uint64_t>(plan.kv_slots) * kFakeLayers * 8;
    return hello;
}

/// Whether `request` is one that this stage dies of; a replay has more text.
bool is_deadly(const Request& request) {
    return std::any_of(
        mischief.pending.begin(), mischief.pending.end(), [&request](const Pending& pending) {
            if (pending.fault.action != ToyAction::DieOf) return false;
            const std::vector<TokenId> poison = toy_request(pending.fault.poison).text;
            return request.text.size() >= poison.size() &&
                   std::equal(poison.begin(), poison.end(), request.text.begin());
        });
}

int work(StageProcess& process, const ToyPlan& plan) {
    const std::vector<StageId> here = process.assignment().actors;
    std::vector<ToyActor> actors;
    std::deque<FrailActor> frail;
    Micros row_time{0};
    for (const StageId id : here) {
        actors.push_back(make_toy_actor(plan, id));
        if (actors.back().backend) {
            row_time += warm_up(*actors.back().backend);
            actors.back().backend->on_run = on_run;
        }
        frail.emplace_back(*actors.back().actor, is_deadly, [] { ::kill(::getpid(), SIGKILL); });
    }
    Result<Wiring> wiring = process.introduce(hello_of(plan));
    if (!wiring) return process.finish(wiring.error());
    StageLoop loop{std::move(wiring).value(), process, {.row_time = row_time}};
    for (std::size_t i = 0; i < here.size(); ++i) loop.add(here[i], frail[i]);
    const auto is_here = [&here](StageId id) {
        return std::find(here.begin(), here.end(), id) != here.end();
    };
    for (const EdgeSpec& edge : toy_edges(plan)) {
        if (!is_here(edge.from) || !is_here(edge.to)) continue;
        if (Status s = loop.connect(edge); !s.ok()) return process.finish(s);
    }
    return process.finish(loop.run());
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3 || std::string{argv[1]} != kControlFdOption) return 64;
    const auto process = StageProcess::join(std::atoi(argv[2]));
    if (!process) {
        std::fprintf(stderr, "%s\n", process.error().what.c_str());
        return 65;
    }
    const control::Assign& assign = process.value()->assignment();
    const std::optional<ToyAssignment> toy = decode_toy(assign.payload);
    if (!toy) return 66;
    own_actors = assign.actors;
    planted_bug.store(toy->bug, std::memory_order_relaxed);
    arrange(*toy, assign.stage, assign.epoch);
    return work(*process.value(), toy->plan);
}
