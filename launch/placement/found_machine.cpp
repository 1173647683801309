#include "launch/placement/found_machine.hpp"

#include <algorithm>
#include <fstream>

namespace paceline {
namespace {

/// One core of each physical core that is near and may be used; none where the kernel does not say.
std::vector<int> near_cores(const std::string& folder, const Machine& host) {
    std::ifstream file{folder + "/local_cpulist"};
    std::string text;
    if (!std::getline(file, text)) return {};
    const Result<std::vector<int>> local = parse_core_list(text);
    if (!local) return {};
    std::vector<int> cores;
    for (const std::vector<int>& siblings : host.smt) {
        const int core = siblings.front();
        const auto& near = local.value();
        if (std::find(near.begin(), near.end(), core) != near.end()) cores.push_back(core);
    }
    std::sort(cores.begin(), cores.end());
    return cores;
}

}  // namespace

GpuMachine found_machine(const GpuInventory& inventory,
                         const Machine& host,
                         const std::string& pci_folder) {
    GpuMachine machine{.source = "this machine", .name = "this machine", .gpus = {}};
    for (std::size_t i = 0; i < inventory.names.size(); ++i) {
        const std::string& place = inventory.pci_places[i];
        std::vector<int> cores;
        if (!place.empty()) cores = near_cores(pci_folder + "/" + place, host);
        machine.gpus.push_back({inventory.names[i], inventory.memory[i], std::move(cores)});
    }
    const auto reaches = [&](std::size_t a, std::size_t b) {
        const std::vector<int>& peers = inventory.peers[a];
        return std::find(peers.begin(), peers.end(), static_cast<int>(b)) != peers.end();
    };
    for (std::size_t b = 0; b < inventory.peers.size(); ++b) {
        for (std::size_t a = 0; a < b; ++a) {
            const bool both = reaches(a, b) && reaches(b, a);
            machine.links[{static_cast<int>(a), static_cast<int>(b)}] = {both ? LinkKind::Peer
                                                                              : LinkKind::Host};
        }
    }
    return machine;
}

}  // namespace paceline
