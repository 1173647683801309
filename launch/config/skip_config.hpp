// SkipConfig: which sub-layers a draft made of the target's own layers leaves out. [draft] with
// source = "skip-layers" and [self_draft] with source = "skip" share its keys.
//
// Plain values; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "actors/self_draft/self_draft_options.hpp"
#include "ipc/base/result.hpp"
#include "model/skip_set.hpp"

namespace paceline {

struct Field;
class TomlTable;

/// SkipConfig::set: as many sub-layers as `ratio` says, evenly spread.
inline constexpr std::string_view kUniformSkip = "uniform";

struct SkipConfig {
    std::string set = std::string{kUniformSkip};  // or SkipSet::text()
    double ratio = 0.45;                          // of what may be skipped, with kUniformSkip
    int keep_first = 1;                           // layers that kUniformSkip and `choose` keep
    int keep_last = 1;
    SkipChoice choose = SkipChoice::Fixed;
    int interval = 1;  // verdicts between two choices

    [[nodiscard]] bool uniform() const { return set == kUniformSkip; }
    /// What `ratio` means in a model of `layers` layers (skipped_of()): whole layers with
    /// Programme, else sub-layers.
    [[nodiscard]] int count_of(int layers) const;
    /// The set to begin with. Errors: BadArgument naming `table` ("[draft]"), key and value, for
    /// layers that the model has not.
    [[nodiscard]] Result<SkipSet> set_of(int layers, std::string_view table) const;
};

/// The keys whose meaning is the same in both tables; each has its own `choose` and `interval`.
[[nodiscard]] std::vector<Field> fields_of(SkipConfig& skip);
/// Of a table whose source skips sub-layers. Errors: BadArgument for a set that is not understood
/// or is empty, or that contradicts `choose`.
[[nodiscard]] Status check_skip(const TomlTable& table, const SkipConfig& skip);

}  // namespace paceline
