// Valid frames between machines, as a seed decides: for tests and for the fuzzer.
#pragma once

#include <cstdint>

#include "ipc/remote/node_frames.hpp"
#include "tests/unit/ipc/seeded_random.hpp"

namespace paceline::test {

inline constexpr std::uint32_t kNodeFrameKinds = 20;

/// Of kind `which` + 1, allowed on `channel` if the kind is. Borrowed bytes are constants.
[[nodiscard]] remote::Frame node_frame(std::uint32_t which,
                                       remote::Channel channel,
                                       SeededRandom& random);

}  // namespace paceline::test
