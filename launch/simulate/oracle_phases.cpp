#include "launch/simulate/oracle_phases.hpp"

#include <cstddef>
#include <cstdint>

#include "ipc/base/check.hpp"
#include "launch/simulate/oracle_backend.hpp"

namespace paceline {
namespace {

constexpr std::uint64_t kPhaseSalt = 0x7068617365000001ULL;

}  // namespace

OraclePhases::OraclePhases(const OracleBadPhases& phases) : phases_{phases} {
    PACE_CHECK(phases_.possible(), "a chain whose probabilities are not above 1");
}

bool OraclePhases::bad(Position position) {
    while (bad_.size() <= static_cast<std::size_t>(position)) {
        const double drawn = oracle_part_of_one(static_cast<Position>(bad_.size()), kPhaseSalt);
        const bool now = bad_.empty()  ? drawn < phases_.share
                         : bad_.back() ? drawn >= 1.0 / phases_.length
                                       : drawn < phases_.turns_bad();
        bad_.push_back(now);
    }
    return bad_[static_cast<std::size_t>(position)];
}

}  // namespace paceline
