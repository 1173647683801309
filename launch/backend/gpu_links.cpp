#include "launch/backend/gpu_links.hpp"

#include <fmt/core.h>

namespace paceline {
namespace {

constexpr const char* kNone = "this program has no links between devices";

}  // namespace

GpuLinks gpu_links(int /*gpu*/) {
    return {.why_no_local = kNone, .why_no_exported = kNone, .why_no_nccl = kNone};
}

Result<std::unique_ptr<TensorDevice>> make_gpu_tensor_device(int gpu) {
    return Error{Errc::Unsupported, fmt::format("cuda:{}: {}", gpu, kNone)};
}

}  // namespace paceline
