#include "actors/segment/scheduling/dispatch_options.hpp"

#include <fmt/core.h>

namespace paceline {
namespace {

Status check_limit(const char* field, std::uint32_t value, std::uint32_t low, std::uint32_t high) {
    if (value >= low && value <= high) return {};
    return Error{Errc::BadArgument,
                 fmt::format("dispatch: {} = {}, must be {} .. {}", field, value, low, high)};
}

}  // namespace

Status validate(const DispatchOptions& options) {
    if (Status rows = check_limit("rows_max", options.rows_max, 1, kVerifyRowsMax); !rows)
        return rows;
    if (Status batches =
            check_limit("batches_in_flight_max", options.batches_in_flight_max, 1, kSegmentsMax);
        !batches) {
        return batches;
    }
    if (Status rows = check_limit("prefill_rows", options.prefill_rows, 1, kBatchRowsMax); !rows) {
        return rows;
    }
    if (Status parts = check_limit("requests_max", options.requests_max, 1, kBatchPartsMax);
        !parts) {
        return parts;
    }
    if (!(options.prompt_share >= 0.0F && options.prompt_share <= 0.9F)) {
        return Error{Errc::BadArgument, fmt::format("dispatch: prompt_share = {}, must be 0 .. 0.9",
                                                    options.prompt_share)};
    }
    if (!(options.verify_reach_min >= 0.0F && options.verify_reach_min <= 1.0F)) {
        return Error{Errc::BadArgument, fmt::format("dispatch: reach_min = {}, must be 0 .. 1",
                                                    options.verify_reach_min)};
    }
    if (options.proposal_wait < Micros{0}) {
        return Error{Errc::BadArgument,
                     fmt::format("dispatch: proposal_wait = {} us, must not be negative",
                                 options.proposal_wait.count())};
    }
    return {};
}

}  // namespace paceline
