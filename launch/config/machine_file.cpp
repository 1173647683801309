#include "launch/config/machine_file.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/core.h>
#include <set>

#include "launch/base/text_input.hpp"
#include "launch/config/field.hpp"
#include "launch/config/stage_config.hpp"
#include "launch/config/toml_reader.hpp"
#include "runtime/parent/affinity.hpp"

namespace paceline {
namespace {

constexpr std::array<std::string_view, 5> kMachineTables{"machine", "numa", "gpu", "link", "node"};
constexpr double kGpusMax = 64;
constexpr double kNodesMax = 1023;
constexpr double kMachinesMax = 64;

using NearCores = std::map<int, std::vector<int>>;

Status read_gpus_of_link(const TomlTable& table, std::string_view key, std::vector<int>& gpus) {
    const TomlValue value = table.value(key);
    const auto* word = std::get_if<std::string>(&value);
    if (word != nullptr && *word == "all") return {};
    const auto* list = std::get_if<TomlNumbers>(&value);
    if (list == nullptr || list->size() < 2)
        return table.error(key, "must be \"all\" or a list of two or more GPUs such as [0, 1]");
    for (const TomlNumber& gpu : *list) {
        if (!gpu.whole || gpu.value < 0 || gpu.value >= kGpusMax)
            return table.error(key, "holds a number that is no GPU");
        gpus.push_back(static_cast<int>(gpu.value));
    }
    std::sort(gpus.begin(), gpus.end());
    if (std::adjacent_find(gpus.begin(), gpus.end()) != gpus.end())
        return table.error(key, "names a GPU twice");
    return {};
}

/// The values of a [[table]], which has all keys of `needed`.
template <class Table>
Status read_one(const TomlTable& table,
                Table& out,
                std::initializer_list<std::string_view> needed) {
    if (Status s = read_fields(table, fields_of(out)); !s.ok()) return s;
    for (const std::string_view key : needed) {
        if (!table.has(key)) return table.error(key, "is missing");
    }
    return {};
}

Status add_node(const TomlTable& table, NearCores& nodes) {
    NumaTable numa;
    if (Status s = read_one(table, numa, {"node", "cores"}); !s.ok()) return s;
    Result<std::vector<int>> cores = parse_core_list(numa.cores);
    if (!cores || cores.value().empty())
        return table.error("cores", "must be a list of cores such as \"0-15,32-47\"");
    if (!nodes.emplace(numa.node, std::move(cores).value()).second)
        return table.error("node", "is described twice");
    return {};
}

Status add_gpus(const TomlTable& table, const NearCores& nodes, GpuMachine& machine) {
    GpuTable gpu;
    if (Status s = read_one(table, gpu, {"name", "memory_gib", "numa"}); !s.ok()) return s;
    const auto node = nodes.find(gpu.numa);
    if (node == nodes.end()) return table.error("numa", "has no [[numa]] table");
    const auto bytes = static_cast<std::uint64_t>(std::llround(std::ldexp(gpu.memory_gib, 30)));
    for (int i = 0; i < gpu.count; ++i) machine.gpus.push_back({gpu.name, bytes, node->second});
    if (machine.gpus.size() <= static_cast<std::size_t>(kGpusMax)) return {};
    return table.error("count", fmt::format("makes more than {} GPUs", kGpusMax));
}

Status add_links(const TomlTable& table, GpuMachine& machine) {
    LinkTable link;
    if (Status s = read_one(table, link, {"kind", "gb_per_second"}); !s.ok()) return s;
    const bool network = link.kind == LinkKind::Network;
    if (table.has("us") && !network) return table.error("us", "is of kind = \"network\"");
    if (table.has("gpus") == network) {
        return table.error("gpus", network ? "is not of kind = \"network\", which is between all "
                                             "[[node]]s"
                                           : "is missing");
    }
    if (network) {
        if (machine.network.gb_per_second != 0) return table.error("kind", "is described twice");
        machine.network = {LinkKind::Network, link.gb_per_second, link.us};
        return {};
    }
    const int count = static_cast<int>(machine.gpus.size());
    if (link.gpus.empty()) {
        for (int gpu = 0; gpu < count; ++gpu) link.gpus.push_back(gpu);
    }
    for (std::size_t b = 0; b < link.gpus.size(); ++b) {
        if (link.gpus[b] >= count)
            return table.error("gpus",
                               fmt::format("names GPU {}, there are {}", link.gpus[b], count));
        for (std::size_t a = 0; a < b; ++a) {
            const bool added = machine.links
                                   .try_emplace({link.gpus[a], link.gpus[b]},
                                                GpuLink{link.kind, link.gb_per_second})
                                   .second;
            if (added) continue;
            return table.error("gpus", fmt::format("gives GPUs {} and {} a second link",
                                                   link.gpus[a], link.gpus[b]));
        }
    }
    return {};
}

Status check_links(const TomlTable& root, const GpuMachine& machine) {
    const int count = static_cast<int>(machine.gpus.size());
    for (int b = 0; b < count; ++b) {
        for (int a = 0; a < b; ++a) {
            if (machine.links.contains({a, b})) continue;
            return root.error("link", fmt::format("is missing between GPUs {} and {}", a, b));
        }
    }
    return {};
}

Status add_machine(const TomlTable& table, GpuMachine& machine) {
    NodeTable node;
    if (Status s = read_one(table, node, {"name"}); !s.ok()) return s;
    const auto& known = machine.nodes;
    if (std::find(known.begin(), known.end(), node.name) != known.end())
        return table.error("name", "is that of another [[node]]");
    machine.nodes.push_back(node.name);
    if (machine.nodes.size() <= static_cast<std::size_t>(kMachinesMax)) return {};
    return table.error("name", fmt::format("is of more than {} machines", kMachinesMax));
}

/// Each machine has the GPUs and links of the file.
Status repeat_for_nodes(const TomlTable& root, GpuMachine& machine) {
    if (machine.nodes.empty()) return {};
    const std::vector<MachineGpu> gpus = machine.gpus;
    const auto links = machine.links;
    const int count = static_cast<int>(gpus.size());
    if (gpus.size() * machine.nodes.size() > static_cast<std::size_t>(kGpusMax))
        return root.error("node", fmt::format("makes more than {} GPUs", kGpusMax));
    for (std::size_t node = 1; node < machine.nodes.size(); ++node) {
        const int first = static_cast<int>(node) * count;
        for (MachineGpu gpu : gpus) {
            gpu.node = node;
            machine.gpus.push_back(std::move(gpu));
        }
        for (const auto& [ends, link] : links)
            machine.links[{ends.first + first, ends.second + first}] = link;
    }
    return {};
}

/// Calls `add` for each [[key]].
template <class Add>
Status for_tables(const TomlTable& root, std::string_view key, Add add) {
    const Result<std::vector<TomlTable>> tables = root.tables(key);
    if (!tables) return tables.error();
    for (const TomlTable& table : tables.value()) {
        if (Status s = add(table); !s.ok()) return s;
    }
    return {};
}

Status read_name(const TomlTable& root, GpuMachine& machine) {
    if (!root.has("machine")) return {};
    const Result<TomlTable> table = root.table("machine");
    if (!table) return table.error();
    return read_fields(table.value(), {name_field("name", machine.name, "of the machine")});
}

}  // namespace

std::vector<Field> fields_of(NumaTable& t) {
    return {{"node", number(t.node, 0, kNodesMax), "its number"},
            {"cores", TextField{&t.cores}, "one of each physical core, as \"0-15,32-47\""}};
}

std::vector<Field> fields_of(GpuTable& t) {
    return {name_field("name", t.name, "as the driver says it"),
            {"count", number(t.count, 1, kGpusMax), "number of equal GPUs"},
            {"memory_gib", number(t.memory_gib, 0.001, 1e6), "GiB that the driver shows"},
            {"numa", number(t.numa, 0, kNodesMax), "the NUMA node that it is near to"}};
}

std::vector<Field> fields_of(LinkTable& t) {
    return {{"gpus",
             OwnField{"\"all\" or a list such as [0, 1]", "must be given",
                      [&t](const TomlTable& table, std::string_view key) {
                          return read_gpus_of_link(table, key, t.gpus);
                      }},
             "the link is between each two of them"},
            {"kind", word(t.kind, {"nvlink", "pcie", "host", "network"}),
             "`host`: through the host's memory; `network`: between the machines of [[node]]"},
            {"gb_per_second", number(t.gb_per_second, 0.001, 1e6), "in each direction"},
            {"us", number(t.us, 0.0, 1e6), "of a network: microseconds one way"}};
}

std::vector<Field> fields_of(NodeTable& t) {
    return {name_field("name", t.name, "of the machine, for `node` of a [[stage]]")};
}

GpuLink GpuMachine::link(int a, int b) const {
    if (!together(a, b)) return network;
    const auto found = links.find(std::minmax({a, b}));
    return found == links.end() ? GpuLink{} : found->second;
}

bool GpuMachine::together(int a, int b) const {
    if (nodes.empty()) return true;
    return gpus[static_cast<std::size_t>(a)].node == gpus[static_cast<std::size_t>(b)].node;
}

std::string GpuMachine::gpu_name(int gpu) const {
    if (nodes.empty()) return fmt::format("cuda:{}", gpu);
    const int count = static_cast<int>(gpus.size() / nodes.size());
    const std::size_t node = gpus[static_cast<std::size_t>(gpu)].node;
    return fmt::format("{}/cuda:{}", nodes[node], gpu % count);
}

bool GpuMachine::reach(int a, int b) const {
    if (a == b) return true;
    const LinkKind kind = link(a, b).kind;
    return kind == LinkKind::Nvlink || kind == LinkKind::Pcie || kind == LinkKind::Peer;
}

std::vector<int> GpuMachine::cores() const {
    std::set<int> all;
    for (const MachineGpu& gpu : gpus) all.insert(gpu.near_cores.begin(), gpu.near_cores.end());
    return {all.begin(), all.end()};
}

Result<GpuMachine> read_machine_file(const std::string& path) {
    const Result<std::string> text = read_file(path, kTomlBytesMax);
    if (!text) return text.error();
    return parse_machine_file(text.value(), path);
}

Result<GpuMachine> parse_machine_file(std::string_view text, const std::string& file) {
    const Result<TomlTable> parsed = parse_toml(text, file);
    if (!parsed) return parsed.error();
    const TomlTable& root = parsed.value();
    GpuMachine machine{.source = file, .name = {}, .gpus = {}};
    NearCores nodes;
    Status s = root.allow_only(kMachineTables);
    if (s.ok()) s = read_name(root, machine);
    if (s.ok()) s = for_tables(root, "numa", [&](const auto& t) { return add_node(t, nodes); });
    if (s.ok()) {
        s = for_tables(root, "gpu", [&](const auto& t) { return add_gpus(t, nodes, machine); });
    }
    if (s.ok() && machine.gpus.empty()) s = root.error("gpu", "is missing: [[gpu]] describes one");
    if (s.ok()) s = for_tables(root, "link", [&](const auto& t) { return add_links(t, machine); });
    if (s.ok()) s = check_links(root, machine);
    if (s.ok()) {
        s = for_tables(root, "node", [&](const auto& t) { return add_machine(t, machine); });
    }
    if (s.ok()) s = repeat_for_nodes(root, machine);
    if (!s.ok()) return s.error();
    return machine;
}

std::string to_text(const GpuLink& link) {
    constexpr std::array<const char*, 6> kWords{"nvlink",  "pcie",    "host",
                                                "network", "unknown", "peer access"};
    const std::string kind = kWords[static_cast<std::size_t>(link.kind)];
    if (link.gb_per_second == 0) return kind;
    const std::string rate = fmt::format("{}, {:g} GB/s", kind, link.gb_per_second);
    return link.us == 0 ? rate : fmt::format("{}, {:g} us", rate, link.us);
}

}  // namespace paceline
