// ExitConfig: the table [exit] of a pipeline's file: the head after the last layer of segments with
// `exit = true` or the role "early-verify", and what it is used for.
//
// Keys, ranges and meanings: fields_of(). Plain values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/segment/exit_options.hpp"
#include "ipc/base/result.hpp"

namespace paceline {

struct Field;
class TomlTable;

enum class ExitHead : std::uint8_t { Trained, Adapter, LogitLens, Random };

/// What heads that look ahead are. Random: noise, for tests and where none are trained.
enum class AheadBlock : std::uint8_t { Transform, Residual, Random };
/// Product: `ahead_top` children per node. Fixed: the tree that the part lists.
enum class AheadTree : std::uint8_t { Product, Fixed };
enum class AheadStandIn : std::uint8_t { Transform, Random };

struct ExitConfig {
    ExitHead head = ExitHead::Trained;  // what is wanted; UsedParts::head_behind() is what there is
    std::string part = {};              // as in the file
    int short_list = 0;
    int ahead = 0;  // heads of the last segment
    AheadBlock ahead_block = AheadBlock::Transform;
    AheadTree ahead_tree = AheadTree::Product;
    AheadStandIn stand_in = AheadStandIn::Transform;  // of residual heads
    bool candidates_given = false;                    // `candidates` was in the file
    /// Of the actor. Its heads, and the stages that get candidates, depend on model and placement:
    /// exit_heads() (launch/load/exit_heads.hpp) sets them.
    ExitOptions options = {};

    /// There is no part for residual heads: those of `stand_in`, without a fixed tree.
    void use_stand_in();
};

[[nodiscard]] std::vector<Field> fields_of(ExitConfig& exit);
/// What follows from several keys. Errors: BadArgument for settings of a use that is not asked for.
[[nodiscard]] Status finish_exit(const TomlTable& table, ExitConfig& exit);

}  // namespace paceline
