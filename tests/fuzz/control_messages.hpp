// Valid control messages of every type, as a seed decides, for the fuzzers of control.hpp.
#pragma once

#include "ipc/wire/control.hpp"
#include "tests/unit/ipc/seeded_random.hpp"

namespace paceline::test {

inline constexpr std::uint32_t kControlTypes = std::variant_size_v<control::Message>;

/// Of type 1 + `which`, which < kControlTypes.
[[nodiscard]] control::Message control_message(std::uint32_t which, SeededRandom& random);

}  // namespace paceline::test
