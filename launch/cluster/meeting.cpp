#include "launch/cluster/meeting.hpp"

#include <array>
#include <chrono>
#include <fmt/core.h>
#include <fstream>
#include <random>
#include <unistd.h>
#include <utility>

#include "runtime/parent/affinity.hpp"

namespace paceline {
namespace {

/// A run is refused within 15 s if a machine is missing.
constexpr std::chrono::milliseconds kMeetLimit{14'000};
constexpr const char* kKeyVariable = "PACELINE_KEY";

std::string first_line(const char* path) {
    std::ifstream file{path};
    std::string line;
    std::getline(file, line);
    return line;
}

std::string host_name() {
    std::array<char, 256> name{};
    return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

}  // namespace

void add_meeting_options(Command& command, MeetingOptions& options) {
    command.add_option("--node", options.node,
                       "K/N: this is machine K of N, counted from 0, which is the conductor's "
                       "(default: as srun, mpirun or torchrun says)");
    command.add_option("--meet", options.meet,
                       fmt::format("HOST:PORT where machine 0 listens (default: as the starter "
                                   "says, $PACELINE_MEET; port {})",
                                   kMeetPort));
    command.add_option("--key", options.key,
                       "file of mode 0600 with the key that all machines share (default: "
                       "$PACELINE_KEY; `paceline agent --new-key FILE` makes one)");
    command.add_option("--node-name", options.name,
                       "what the machine is called in messages and in `node` of a [[stage]] "
                       "(default: its host name)");
}

Result<std::optional<StarterPlace>> conductor_place(const MeetingOptions& options,
                                                    const Environment& environment) {
    Result<std::optional<StarterPlace>> place =
        read_starter(options.node, options.meet, environment.starter);
    if (!place || !place.value()) return place;
    if (place.value()->size == 1) return std::optional<StarterPlace>{};
    if (place.value()->rank == 0) return place;
    return Error{Errc::BadArgument,
                 fmt::format("{}: this is machine {} of {}, and machine 0 decodes: `paceline "
                             "agent` is for the others (launch/paceline-launch chooses)",
                             place.value()->starter, place.value()->rank, place.value()->size)};
}

Result<remote::NodeKey> meeting_key(const MeetingOptions& options, const Environment& environment) {
    if (!options.key.empty()) return remote::NodeKey::from_file(options.key);
    const auto told = environment.variables.find(kKeyVariable);
    if (told != environment.variables.end())
        return remote::NodeKey::from_text(told->second, kKeyVariable);
    return Error{Errc::BadArgument,
                 "several machines need a key that all of them have: --key FILE or $PACELINE_KEY "
                 "(`paceline agent --new-key FILE` makes one)"};
}

Status check_meeting(const MeetingOptions& options,
                     const Environment& environment,
                     bool names_stages) {
    const Result<std::optional<StarterPlace>> place = conductor_place(options, environment);
    if (!place) return place.error();
    if (!place.value()) return {};
    if (!names_stages) {
        return Error{Errc::BadArgument,
                     fmt::format("{}: {} machines decode with stages; give --method NAME, other "
                                 "than auto and plain, or --config too",
                                 place.value()->starter, place.value()->size)};
    }
    const Result<remote::NodeKey> key = meeting_key(options, environment);
    return key ? Status{} : key.error();
}

Result<remote::Hello> hello_of_here(const std::string& name) {
    const Result<Machine> machine = read_machine();
    if (!machine) return machine.error();
    remote::Hello hello;
    hello.build = remote::this_build().name;
    hello.node = name.empty() ? host_name() : name;
    hello.node.resize(std::min<std::size_t>(hello.node.size(), remote::kNameBytesMax));
    hello.machine = first_line("/proc/sys/kernel/random/boot_id") + " " + host_name();
    // Machines in one kernel (containers, tests) differ by the name that they were given.
    if (!name.empty()) hello.machine += " " + name;
    hello.machine.resize(std::min<std::size_t>(hello.machine.size(), remote::kNameBytesMax));
    std::random_device random;
    hello.session = std::uint64_t{random()} << 32U | random();
    hello.cores = static_cast<std::uint32_t>(machine.value().preferred_order().size());
    hello.memory_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                         static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    return hello;
}

Result<std::unique_ptr<Cluster>> open_cluster(const StarterPlace& place,
                                              const MeetingOptions& options,
                                              const Environment& environment,
                                              const SupervisionConfig& supervision,
                                              MeetingNews news) {
    const Result<remote::NodeKey> key = meeting_key(options, environment);
    if (!key) return key.error();
    Result<remote::Hello> hello = hello_of_here(options.name);
    if (!hello) return hello.error();
    HubPlan plan;
    plan.listen = place.meet;
    plan.hello = std::move(hello).value();
    plan.nodes = static_cast<std::size_t>(place.size - 1);
    plan.lease.length = supervision.lease;
    plan.stop_grace = supervision.stop_grace;
    plan.say = std::move(news.say);
    Result<std::unique_ptr<ConductorHub>> hub = ConductorHub::open(key.value(), std::move(plan));
    if (!hub) return hub.error();
    Result<std::vector<remote::Hello>> machines =
        hub.value()->await_nodes(kMeetLimit, news.missing);
    if (!machines) return machines.error();
    auto cluster = std::make_unique<Cluster>();
    cluster->hub = std::move(hub).value();
    cluster->machines = std::move(machines).value();
    return cluster;
}

}  // namespace paceline
