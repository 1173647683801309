#include "actors/self_draft/self_draft_options.hpp"

#include <algorithm>
#include <fmt/core.h>

#include "ipc/base/limits.hpp"

namespace paceline {
namespace {

template <class Number>
Status check_range(const char* field, Number value, Number low, Number high) {
    if (value >= low && value <= high) return {};
    return Error{Errc::BadArgument,
                 fmt::format("self_draft: {} = {}, must be {} to {}", field, value, low, high)};
}

}  // namespace

int ConfidenceTree::candidates_at(float probability) const {
    std::size_t at = 0;
    while (at < above.size() && probability <= above[at]) ++at;
    return candidates[at];
}

int ConfidenceTree::most() const {
    return *std::max_element(candidates.begin(), candidates.end());
}

std::int32_t SelfDraftOptions::scratch_slots() const {
    switch (choice) {
        case SkipChoice::Fixed:
            return 0;
        case SkipChoice::Search:
            return 2 * window;
        case SkipChoice::Programme:
            return programme_skip + 1;
    }
    return 0;
}

Status validate(const SelfDraftOptions& options, int layers) {
    Status status = check_range("exit", options.exit, 0, layers - 1);
    if (status.ok()) status = check_range("gamma", options.gamma, 1, static_cast<int>(kGammaMax));
    if (status.ok()) status = check_range("confidence_min", options.confidence_min, 0.0F, 1.0F);
    if (status.ok()) status = check_range("reach_min", options.reach_min, 0.0F, 1.0F);
    if (status.ok()) status = check_range("acceptance_target", options.acceptance_target, 0.0, 1.0);
    if (status.ok()) status = check_range("window", options.window, 1, 128);
    if (status.ok()) status = check_range("interval", options.interval, 1, 1 << 20);
    if (status.ok()) status = check_range("optimise_share", options.optimise_share, 0.0, 1.0);
    if (!status.ok()) return status;
    if (options.early_exit() != (options.skip.count() == 0)) {
        return Error{Errc::BadArgument,
                     fmt::format("self_draft: exit = {} with {} skipped sub-layers: a draft exits "
                                 "early or skips sub-layers",
                                 options.exit, options.skip.count())};
    }
    if (options.adapter && (!options.early_exit() || options.head != HeadId::Adapter)) {
        return Error{Errc::BadArgument,
                     fmt::format("self_draft: adapter = true with exit = {} and head {}: an "
                                 "adapter is that of an exit, and its head is the adapter's",
                                 options.exit, static_cast<int>(options.head))};
    }
    if (options.choice != SkipChoice::Programme) return {};
    const int free = layers - options.programme_keep_first - options.programme_keep_last;
    status = check_range("keep_first", options.programme_keep_first, 1, layers);
    if (status.ok()) status = check_range("skipped layers", options.programme_skip, 1, free);
    return status;
}

}  // namespace paceline
