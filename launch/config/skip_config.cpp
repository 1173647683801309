#include "launch/config/skip_config.hpp"

#include <algorithm>
#include <fmt/core.h>

#include "launch/config/field.hpp"
#include "launch/config/toml_reader.hpp"

namespace paceline {
namespace {

constexpr int kSkipLayersMax = 1024;  // of a set that is checked before the model is known

}  // namespace

int SkipConfig::count_of(int layers) const {
    const int open = std::max(layers - keep_first - keep_last, 0);
    const int each = choose == SkipChoice::Programme ? 1 : 2;
    return skipped_of(ratio, each * open);
}

Result<SkipSet> SkipConfig::set_of(int layers, std::string_view table) const {
    if (uniform()) {
        const int sublayers = count_of(layers) * (choose == SkipChoice::Programme ? 2 : 1);
        return SkipSet::uniform(layers, sublayers, keep_first, keep_last);
    }
    Result<SkipSet> parsed = SkipSet::parse(set, layers);
    if (parsed) return parsed;
    return Error{Errc::BadArgument,
                 fmt::format("{} skip = \"{}\": {}", table, set, parsed.error().what)};
}

std::vector<Field> fields_of(SkipConfig& skip) {
    return {
        {"skip", TextField{.at = &skip.set, .one_line = true},
         "the sub-layers that drafts leave out: `uniform`, every second layer as far as "
         "`skip_ratio` "
         "says, or a set such as `attn:1,3,5-9 mlp:2,4`"},
        {"skip_ratio", number(skip.ratio, 0, 1),
         "`uniform`: share of the sub-layers that may be skipped (of the layers with `choose = "
         "\"programme\"`), rounded down, at least one"},
        {"keep_first", number(skip.keep_first, 0, kSkipLayersMax),
         "first layers that `uniform` and `choose` never skip"},
        {"keep_last", number(skip.keep_last, 0, kSkipLayersMax), "last layers, likewise"},
    };
}

Status check_skip(const TomlTable& table, const SkipConfig& skip) {
    if (skip.choose == SkipChoice::Programme && skip.keep_first < 1)
        return table.error("keep_first", "must be 1 or more with choose = \"programme\"");
    if (skip.uniform()) return {};
    if (skip.choose == SkipChoice::Search)
        return table.error("skip", "is found by choose = \"search\"");
    const Result<SkipSet> set = SkipSet::parse(skip.set, kSkipLayersMax);
    if (!set) return table.error("skip", set.error().what);
    if (set.value().count() == 0) return table.error("skip", "names no sub-layer");
    return {};
}

}  // namespace paceline
