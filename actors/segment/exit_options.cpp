#include "actors/segment/exit_options.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <string>

namespace paceline {
namespace {

Error refused(const std::string& field, const std::string& value, const std::string& rule) {
    return {Errc::BadArgument, "exit: " + field + " = " + value + ", " + rule};
}

Status check_range(const char* field, std::uint32_t value, std::uint32_t low, std::uint32_t high) {
    if (value >= low && value <= high) return {};
    return refused(field, std::to_string(value), fmt::format("must be {} .. {}", low, high));
}

/// Parents before children, no node twice, no deeper than there are heads.
Status check_tree(const ExitOptions& options) {
    const std::vector<AheadNode>& tree = options.ahead_tree;
    if (tree.size() > kAheadNodesMax) {
        return refused("ahead_tree", fmt::format("{} nodes", tree.size()),
                       fmt::format("must have at most {}", kAheadNodesMax));
    }
    std::vector<std::size_t> depths;
    for (std::size_t i = 0; i < tree.size(); ++i) {
        const AheadNode& node = tree[i];
        const std::string field = fmt::format("ahead_tree[{}]", i);
        if (node.parent < -1 || node.parent >= static_cast<std::int16_t>(i))
            return refused(field, fmt::format("parent {}", node.parent), "must be before it");
        if (node.rank > kAheadRankMax) {
            return refused(field, fmt::format("rank {}", node.rank),
                           fmt::format("must be 0 .. {}", kAheadRankMax));
        }
        if (std::find(tree.begin(), tree.begin() + static_cast<std::ptrdiff_t>(i), node) !=
            tree.begin() + static_cast<std::ptrdiff_t>(i))
            return refused(field, fmt::format("rank {}", node.rank), "is there already");
        depths.push_back(node.parent < 0 ? 1 : depths[static_cast<std::size_t>(node.parent)] + 1);
        if (depths.back() > options.ahead.size()) {
            return refused(field, fmt::format("depth {}", depths.back()),
                           fmt::format("there are {} heads that look ahead", options.ahead.size()));
        }
    }
    return {};
}

}  // namespace

Status validate(const ExitOptions& options) {
    if (Status top = check_range("top", options.top, 1, kExitTopMax); !top) return top;
    if (Status most = check_range("early_max", options.early_max, 1, kGammaMax); !most) return most;
    if (Status top = check_range("ahead_top", options.ahead_top, 1, kExitTopMax); !top) return top;
    if (Status tree = check_tree(options); !tree) return tree;
    if (!(options.gate >= 0.0F && options.gate <= 1.0F)) {
        return refused("gate", std::to_string(options.gate), "must be 0 .. 1");
    }
    if (options.defer_limit <= Micros{0}) {
        return refused("defer_limit", fmt::format("{} us", options.defer_limit.count()),
                       "must be positive");
    }
    if (options.defers && !options.proposes) {
        return refused("defers", "true", "an exit that proposes nothing has no reason to wait");
    }
    return {};
}

}  // namespace paceline
