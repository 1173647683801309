// SelfDraftConfig: the table [self_draft] of a pipeline's file: how the first segment drafts for
// itself, by an early exit or by leaving out sub-layers.
//
// Keys, ranges and meanings: fields_of(). Plain values; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "actors/self_draft/self_draft_options.hpp"
#include "ipc/base/result.hpp"
#include "launch/config/search_config.hpp"
#include "launch/config/skip_config.hpp"

namespace paceline {

struct Field;
class TomlTable;

enum class SelfDraftSource : std::uint8_t { Exit, Skip };
enum class SelfDraftHead : std::uint8_t { LogitLens, Trained, Adapter };
enum class SelfDraftTree : std::uint8_t { None, Paper, Code };

struct SelfDraftConfig {
    SelfDraftSource source = SelfDraftSource::Exit;
    double exit = 0.2667;  // layers: whole, or a part of the depth below 1
    SelfDraftHead head = SelfDraftHead::LogitLens;
    int short_list = 0;  // token ids that the target's own head knows; 0: all
    bool probe = false;
    SelfDraftTree tree = SelfDraftTree::None;

    SkipConfig skip = {};
    SearchConfig search = {};
    /// Of the actor: gamma, the stop rules and auto_off. What depends on the target, and what
    /// `skip` and `search` say, is set by plan_self_draft() (launch/load/self_draft_plan.hpp).
    SelfDraftOptions options = {};

    /// Layers of the exit in a target of `of` layers: at least one, not all.
    [[nodiscard]] int exit_of(int of) const;
};

[[nodiscard]] std::vector<Field> fields_of(SelfDraftConfig& config);
/// Errors: BadArgument for keys of the other source or head, a skip set that is not understood, and
/// `threshold_adapts` without a threshold.
[[nodiscard]] Status check_self_draft(const TomlTable& table, const SelfDraftConfig& config);

}  // namespace paceline
