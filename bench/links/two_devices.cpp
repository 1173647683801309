// Of bench_links_emulated: there are two devices, before main().
#include "tests/emulated/driver/emulation.hpp"

namespace {

[[maybe_unused]] const bool set = (paceline::emulated::set_devices(2), true);

}  // namespace
