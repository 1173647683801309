// Part of paceline_emulated: how many devices it has, and where one breaks as a test wants it to.
//
//     PACELINE_EMULATED_DEVICES=N     cuda:0 to cuda:N-1 (1), in every process.
//     PACELINE_EMULATED_PEERS=0       They do not reach each other's memory.
//     PACELINE_EMULATED_FAULT=FILE    FILE holds a number N. The first process that comes to its
//                                     Nth kernel takes FILE away and gets no more out of its
//                                     device; with "N hang" that kernel never ends. Processes that
//                                     come later find no file and are spared.
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <unistd.h>

#include "tests/emulated/cuda/order.hpp"
#include "tests/emulated/driver/emulation.hpp"

namespace {

bool read_fault() {
    const char* named = std::getenv("PACELINE_EMULATED_FAULT");
    if (named == nullptr) return false;
    const std::string path = named;
    std::uint64_t launch = 0;
    std::string how;
    std::ifstream file{path};
    if (!(file >> launch)) return false;
    const bool hangs = static_cast<bool>(file >> how) && how == "hang";
    // Whoever removes a file is the only one who does.
    paceline::cuda::emulated::break_at(launch, [path, hangs] {
        if (unlink(path.c_str()) != 0) return false;
        while (hangs) pause();
        return true;
    });
    return true;
}

/// The driver of the links and the runtime of the kernels: the same devices, the same memory.
bool connect_devices() {
    const char* count = std::getenv("PACELINE_EMULATED_DEVICES");
    const int devices = count != nullptr ? std::atoi(count) : 1;
    paceline::emulated::set_devices(devices);
    paceline::cuda::emulated::set_devices(devices);
    const char* peers = std::getenv("PACELINE_EMULATED_PEERS");
    paceline::cuda::emulated::set_peers_possible(peers == nullptr || std::atoi(peers) != 0);
    paceline::emulated::watch_memory(paceline::cuda::emulated::add_memory,
                                     paceline::cuda::emulated::remove_memory);
    return true;
}

/// Before main(): the program itself knows nothing of this.
[[maybe_unused]] const bool planted = read_fault();
[[maybe_unused]] const bool connected = connect_devices();

}  // namespace
