// Part of paceline_emulated: lets its device break where a test wants it to.
//
//     PACELINE_EMULATED_FAULT=FILE    FILE holds a number N. The first process that comes to its Nth
//                                     kernel takes FILE away and gets no more out of its device;
//                                     processes that come later find no file and are spared.
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <unistd.h>

#include "model/kernels/cuda/emulated/order.hpp"

namespace {

bool read_fault() {
    const char* named = std::getenv("PACELINE_EMULATED_FAULT");
    if (named == nullptr) return false;
    const std::string path = named;
    std::uint64_t launch = 0;
    if (!(std::ifstream{path} >> launch)) return false;
    // Whoever removes a file is the only one who does.
    paceline::cuda::emulated::break_at(launch, [path] { return unlink(path.c_str()) == 0; });
    return true;
}

/// Before main(): the program itself knows nothing of this.
[[maybe_unused]] const bool planted = read_fault();

}  // namespace
