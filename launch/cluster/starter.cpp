#include "launch/cluster/starter.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/core.h>

namespace paceline {
namespace {

/// A starter, and the variables in which it says where a task is.
struct Known {
    const char* name;
    const char* rank;
    const char* size;
    const char* local_rank;
};
constexpr std::array kKnown{
    Known{"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
    Known{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    Known{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
};
constexpr std::array<const char*, 5> kOthers{"SLURM_STEP_ID", "SLURM_STEP_NODELIST", "MASTER_ADDR",
                                             "MASTER_PORT", "TORCHELASTIC_RUN_ID"};
constexpr const char* kMeetVariable = "PACELINE_MEET";

Error wrong(const std::string& what) {
    return {Errc::BadArgument, what};
}

std::string value_of(const StarterVariables& variables, const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string{} : found->second;
}

Result<int> number_in(const StarterVariables& variables, const char* name) {
    const std::string text = value_of(variables, name);
    int number = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc{} && end == text.data() + text.size() && number >= 0) return number;
    return wrong(fmt::format("{} is '{}', expected a number", name, text));
}

/// salloc and sbatch set some of srun's variables too, but no step.
bool is_there(const Known& known, const StarterVariables& variables) {
    if (!variables.contains(known.rank)) return false;
    if (known.rank == std::string_view{"SLURM_PROCID"}) return variables.contains("SLURM_STEP_ID");
    // Other programs use these short names.
    if (known.rank == std::string_view{"RANK"}) return variables.contains("TORCHELASTIC_RUN_ID");
    return true;
}

Result<remote::NodePlace> parse_meet(const std::string& text, const char* source) {
    const bool port = text.find(':') != text.npos;
    Result<remote::NodePlace> place =
        remote::NodePlace::parse(port ? text : fmt::format("{}:{}", text, kMeetPort));
    if (place) return place;
    return wrong(fmt::format("{}: {}", source, place.error().what));
}

/// "1/2".
Result<StarterPlace> by_hand(const std::string& node, const std::string& meet) {
    const std::size_t slash = node.find('/');
    const StarterVariables both{{"--node", node.substr(0, slash)},
                                {"N", slash == node.npos ? "" : node.substr(slash + 1)}};
    const Result<int> rank = number_in(both, "--node");
    const Result<int> size = number_in(both, "N");
    if (!rank || !size || size.value() < 1 || rank.value() >= size.value()) {
        return wrong(
            fmt::format("--node: '{}' is not K/N: this is machine K of N, counted from 0, "
                        "as 1/2",
                        node));
    }
    if (meet.empty()) {
        return wrong("--node needs --meet HOST:PORT, where machine 0 listens");
    }
    Result<remote::NodePlace> place = parse_meet(meet, "--meet");
    if (!place) return place.error();
    return StarterPlace{"--node", rank.value(), size.value(), std::move(place).value()};
}

Result<remote::NodePlace> meeting_of(const Known& known,
                                     const std::string& meet,
                                     const StarterVariables& variables) {
    if (!meet.empty()) return parse_meet(meet, "--meet");
    const std::string told = value_of(variables, kMeetVariable);
    if (!told.empty()) return parse_meet(told, kMeetVariable);
    const std::string_view starter = known.name;
    if (starter == "srun") {
        const Result<std::string> host = first_host(value_of(variables, "SLURM_STEP_NODELIST"));
        if (!host) return host.error();
        return parse_meet(host.value(), "SLURM_STEP_NODELIST");
    }
    // torchrun listens on MASTER_PORT itself.
    if (starter == "torchrun") {
        const std::string address = value_of(variables, "MASTER_ADDR");
        if (address.empty()) return wrong("torchrun has set RANK and no MASTER_ADDR");
        return parse_meet(address, "MASTER_ADDR");
    }
    return wrong(
        "mpirun does not say where rank 0 is: give mpirun -x PACELINE_MEET=HOST:PORT with the host "
        "of rank 0");
}

Result<StarterPlace> by_starter(const Known& known,
                                const std::string& meet,
                                const StarterVariables& variables) {
    const Result<int> rank = number_in(variables, known.rank);
    if (!rank) return rank.error();
    const Result<int> size = number_in(variables, known.size);
    if (!size) return size.error();
    const Result<int> local = number_in(variables, known.local_rank);
    if (!local) return local.error();
    if (local.value() != 0) {
        return wrong(
            fmt::format("{} is {}: {} has started two tasks on this machine; one a "
                        "machine is wanted (srun --ntasks-per-node=1, mpirun --map-by "
                        "ppr:1:node, torchrun --nproc-per-node 1)",
                        known.local_rank, local.value(), known.name));
    }
    if (rank.value() >= size.value()) {
        return wrong(
            fmt::format("{} is {}, {} is {}", known.rank, rank.value(), known.size, size.value()));
    }
    Result<remote::NodePlace> place = meeting_of(known, meet, variables);
    if (!place) return place.error();
    return StarterPlace{known.name, rank.value(), size.value(), std::move(place).value()};
}

}  // namespace

bool is_starter_variable(std::string_view name) {
    const auto is = [name](const char* each) { return name == each; };
    return std::any_of(kKnown.begin(), kKnown.end(),
                       [&](const Known& known) {
                           return is(known.rank) || is(known.size) || is(known.local_rank);
                       }) ||
           std::any_of(kOthers.begin(), kOthers.end(), is) || is(kMeetVariable);
}

Result<std::optional<StarterPlace>> read_starter(const std::string& node,
                                                 const std::string& meet,
                                                 const StarterVariables& variables) {
    if (!node.empty()) {
        Result<StarterPlace> place = by_hand(node, meet);
        if (!place) return place.error();
        return std::optional{std::move(place).value()};
    }
    const Known* starter = nullptr;
    for (const Known& known : kKnown) {
        if (!is_there(known, variables)) continue;
        // mpirun within an allocation of Slurm starts its daemons by srun, which sets its own.
        const bool by_mpirun =
            starter != nullptr && known.name == std::string_view{"mpirun"} &&
            starter->name == std::string_view{"srun"} &&
            value_of(variables, known.size) != value_of(variables, starter->size);
        if (starter != nullptr && !by_mpirun) {
            return wrong(
                fmt::format("{} = {} and {} = {}: two starters are one in another; which "
                            "one counts says --node K/N --meet HOST:PORT",
                            starter->rank, value_of(variables, starter->rank), known.rank,
                            value_of(variables, known.rank)));
        }
        starter = &known;
    }
    if (starter == nullptr) return std::optional<StarterPlace>{};
    Result<StarterPlace> place = by_starter(*starter, meet, variables);
    if (!place) return place.error();
    if (place.value().size == 1) return std::optional<StarterPlace>{};
    return std::optional{std::move(place).value()};
}

Result<std::string> first_host(std::string_view list) {
    std::string host;
    while (!list.empty() && list.front() != ',') {
        if (list.front() != '[') {
            host += list.front();
            list.remove_prefix(1);
            continue;
        }
        const std::size_t close = list.find(']');
        const std::size_t end = list.find_first_of(",-]");
        if (close == list.npos || end == 1) {
            return wrong(fmt::format("'{}' is no list of hosts", list));
        }
        host += list.substr(1, end - 1);
        list.remove_prefix(close + 1);
    }
    if (host.empty()) return wrong("the list of hosts is empty");
    return host;
}

}  // namespace paceline
