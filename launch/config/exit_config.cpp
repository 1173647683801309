#include "launch/config/exit_config.hpp"

#include "launch/config/field.hpp"
#include "launch/config/toml_reader.hpp"

namespace paceline {
namespace {

constexpr int kAheadMax = 8;

}  // namespace

std::vector<Field> fields_of(ExitConfig& e) {
    ExitOptions& o = e.options;
    return {
        {"head", word(e.head, {"trained", "adapter", "logit-lens", "random"}),
         "the head `trained` for the layer, the trained `adapter`, which sees the text before, the "
         "target's own head (`logit-lens`), or noise for tests (`random`). Where a layer has no "
         "adapter its trained head is used, without that the logit lens"},
        {"part", TextField{&e.part}, "file of the trained heads or adapter",
         "found by fingerprint"},
        {"short_list", number(e.short_list, 0, kVocabularyMax),
         "heads that are not trained know only the first N token ids; 0: all"},
        {"candidates", &o.sends_candidates,
         "FOLD: draft and correct are sent the `top` best tokens after each row",
         "true with a draft, unless the exit proposes"},
        {"top", number(o.top, 1, kExitTopMax), "candidates that an exit sends per row"},
        {"lockstep", &o.lockstep,
         "FOLD as published: the batch goes on when the draft has done `gamma_early` steps"},
        {"proposes", &o.proposes,
         "AdaDecode: a token that the exit is sure of enters layer 0 at once"},
        {"gate", number(o.gate, 0, 1), "`proposes`: the least probability of such a token"},
        {"early_max", number(o.early_max, 1, kGammaMax),
         "`proposes`: rows without a verdict that such a token may stand after"},
        {"defers", &o.defers,
         "`proposes`: rows wait here until the exit is not sure of one, then go on together"},
        {"defer_limit_us", micros(o.defer_limit, 1, 10'000'000),
         "`defers`: microseconds after which they go on anyway"},
        {"ahead", number(e.ahead, 0, kAheadMax),
         "heads of the last segment for positions + 2, + 3, ...; noise where none are trained"},
        {"ahead_top", number(o.ahead_top, 1, kExitTopMax),
         "`ahead`: children per node of its tree"},
        {"ahead_block", word(e.ahead_block, {"transform", "residual", "random"}),
         "`ahead`: the heads E T n (`transform`), Medusa's E (n + SiLU(W n)) (`residual`), or "
         "noise "
         "for tests (`random`); n is the last layer's state after the norm, E the target's head"},
        {"ahead_tree", word(e.ahead_tree, {"product", "fixed"}),
         "`ahead`: `ahead_top` children per node (`product`), or the nodes that the part lists "
         "(`fixed`)"},
        {"stand_in", word(e.stand_in, {"transform", "random"}),
         "`ahead_block = \"residual\"`: the heads without a part of such; their tree is a product"},
        {"always_on", &o.always_on,
         "also while its measured cost exceeds its gain; with `lockstep` it always is"},
    };
}

Status finish_exit(const TomlTable& table, ExitConfig& exit) {
    exit.candidates_given = table.has("candidates");
    for (const char* key : {"gate", "early_max", "defers"}) {
        if (!exit.options.proposes && table.has(key))
            return table.error(key, "is for exits that propose (proposes = true)");
    }
    if (!exit.options.defers && table.has("defer_limit_us"))
        return table.error("defer_limit_us", "is for exits that defer (defers = true)");
    if (exit.ahead == 0 && table.has("ahead_top"))
        return table.error("ahead_top", "is for heads that look ahead (ahead = 1 or more)");
    for (const char* key : {"ahead_block", "ahead_tree", "stand_in"}) {
        if (exit.ahead == 0 && table.has(key))
            return table.error(key, "is for heads that look ahead (ahead = 1 or more)");
    }
    if (exit.ahead_block == AheadBlock::Random && exit.ahead_tree == AheadTree::Fixed)
        return table.error("ahead_tree", "is a part's, and random heads have none");
    return {};
}

void ExitConfig::use_stand_in() {
    ahead_block = stand_in == AheadStandIn::Random ? AheadBlock::Random : AheadBlock::Transform;
    ahead_tree = AheadTree::Product;
}

}  // namespace paceline
